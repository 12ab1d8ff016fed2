//! The file that a picture is written to.

use std::{
    fs::Permissions,
    io::{self, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, ensure};
use tempfile::NamedTempFile;

/// A file that appears, or is replaced, when its picture is complete.
#[derive(Debug)]
pub struct PictureFile {
    path: PathBuf,
    temporary: NamedTempFile,
}

impl PictureFile {
    /// Creates a temporary file beside the file, so that a run starts only if it can be written.
    ///
    /// # Errors
    /// If the path is a folder, or no file can be created beside it.
    pub fn create(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display();
        ensure!(!path.is_dir(), "cannot write the picture: `{shown}` is a folder");
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        ensure!(
            folder.is_dir(),
            "cannot write the picture to `{shown}`: there is no folder `{}`",
            folder.display()
        );
        let temporary = tempfile::Builder::new()
            .prefix(".picture-")
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(folder)
            // The error itself names the temporary file.
            .map_err(|error| io::Error::from(error.kind()))
            .with_context(|| format!("cannot write the picture to `{shown}`"))?;
        Ok(Self { path: path.to_owned(), temporary })
    }

    /// Writes the picture, and gives the file its name.
    ///
    /// # Errors
    /// If the file can't be written or renamed.
    pub fn save(mut self, picture: &str) -> anyhow::Result<()> {
        let shown = self.path.display();
        let cannot_write = || format!("cannot write the picture to `{shown}`");
        self.temporary.write_all(picture.as_bytes()).with_context(cannot_write)?;
        self.temporary
            .persist(&self.path)
            .map_err(|error| error.error)
            .with_context(cannot_write)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    #[test]
    fn file_is_replaced_when_the_picture_is_complete_and_nothing_else_is_left() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("run.svg");
        fs::write(&path, "old").unwrap();
        let file = PictureFile::create(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        file.save("new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        drop(PictureFile::create(&path).unwrap());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn file_in_a_missing_folder_and_a_folder_are_errors_that_name_it() {
        let folder = TempDir::new().unwrap();
        let missing = folder.path().join("none/run.svg");
        for (path, why) in
            [(missing.as_path(), "there is no folder"), (folder.path(), "is a folder")]
        {
            let error = format!("{:#}", PictureFile::create(path).unwrap_err());
            assert!(error.contains(&path.display().to_string()), "{error}");
            assert!(error.contains(why), "{error}");
        }
    }
}
