//! The disk: a copy of the folder that has only what was synced.

use std::{
    env,
    fs::{self, DirBuilder, File},
    io::{self, ErrorKind},
    os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::LazyLock,
};

const CHUNK: usize = 64 << 10;
/// The rights of new folders. Others are not asked for: PostgreSQL makes all of its own like this.
const FOLDER_MODE: u32 = 0o700;

static DISK: LazyLock<Option<Disk>> = LazyLock::new(|| {
    let folder = |variable| env::var_os(variable).map(PathBuf::from);
    Some(Disk { folder: folder("FENCED_DISK_FOLDER")?, synced: folder("FENCED_DISK_SYNCED")? })
});

/// A folder that processes see, and the synced copy of it. Both paths are absolute, without links.
#[derive(Debug)]
pub(crate) struct Disk {
    folder: PathBuf,
    synced: PathBuf,
}

impl Disk {
    /// Returns the disk of this process, if it has one.
    pub(crate) fn of_this_process() -> Option<&'static Self> {
        DISK.as_ref()
    }

    /// Returns the path of the synced copy, if the path is on the disk.
    pub(crate) fn copy_of(&self, path: &Path) -> Option<PathBuf> {
        Some(self.synced.join(path.strip_prefix(&self.folder).ok()?))
    }

    /// Keeps other threads and processes from changing the copy until the file is dropped.
    pub(crate) fn lock(&self) -> io::Result<File> {
        let file = File::open(&self.synced)?;
        file.lock()?;
        Ok(file)
    }

    /// Syncs a file or folder that is open for reading.
    pub(crate) fn sync(&self, file: &File, path: &Path, copy: &Path) -> io::Result<()> {
        let metadata = file.metadata()?;
        if metadata.nlink() == 0 {
            // It was deleted, and its path may be that of another one.
            return Ok(());
        }
        if metadata.is_dir() {
            create_folder(copy)?;
            return sync_names(path, copy);
        }
        create_folder(copy.parent().expect("the folder of the disk is above it"))?;
        copy_content(file, &open_copy(copy, metadata.mode())?)
    }

    /// Renames the copy of a file or folder. One that was never synced has none, and the new name
    /// stands for what it stood for before.
    pub(crate) fn rename(&self, (from, to): (PathBuf, PathBuf)) -> io::Result<()> {
        match fs::rename(from, to) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// Makes the deletions in a folder durable, and the names of its new files.
fn sync_names(folder: &Path, copy: &Path) -> io::Result<()> {
    for entry in fs::read_dir(copy)? {
        let entry = entry?;
        if folder.join(entry.file_name()).symlink_metadata().is_ok() {
            continue;
        }
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let copy = copy.join(entry.file_name());
        match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => create_folder(&copy)?,
            Ok(metadata) if metadata.is_file() => drop(open_copy(&copy, metadata.mode())?),
            // Another kind, such as a socket; or it was deleted at this moment.
            _ => {}
        }
    }
    Ok(())
}

fn create_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(path)
}

fn open_copy(path: &Path, mode: u32) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false).mode(mode & 0o777).open(path)
}

/// Makes the content and the length of the copy those of the file. Only what differs is written.
fn copy_content(file: &File, copy: &File) -> io::Result<()> {
    let (mut new, mut old) = (vec![0; CHUNK], vec![0; CHUNK]);
    let mut position = 0;
    loop {
        let length = file.read_at(&mut new, position)?;
        if length == 0 {
            return copy.set_len(position);
        }
        let new = &new[..length];
        let known = copy.read_at(&mut old[..length], position)?;
        if *new != old[..known] {
            copy.write_all_at(new, position)?;
        }
        position += length as u64;
    }
}
