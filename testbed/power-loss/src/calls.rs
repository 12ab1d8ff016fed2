//! The functions that replace those of the C library: syncs and renames.

use std::{
    env,
    ffi::{CStr, OsStr},
    fs::{self, File},
    io,
    mem::ManuallyDrop,
    os::{
        fd::{FromRawFd, RawFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
};

use libc::{
    AT_FDCWD, EIO, F_GETFL, O_ACCMODE, O_WRONLY, SYS_fdatasync, SYS_fsync, SYS_renameat2, c_char,
    c_int, c_long, c_uint,
};

use crate::disk::Disk;

/// `fsync(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn fsync(file: c_int) -> c_int {
    sync(SYS_fsync, file)
}

/// `fdatasync(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn fdatasync(file: c_int) -> c_int {
    sync(SYS_fdatasync, file)
}

/// `rename(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn rename(from: *const c_char, to: *const c_char) -> c_int {
    // SAFETY: the caller passes two paths, as to this function.
    unsafe { renameat2(AT_FDCWD, from, AT_FDCWD, to, 0) }
}

/// `renameat(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn renameat(
    from_folder: c_int,
    from: *const c_char,
    to_folder: c_int,
    to: *const c_char,
) -> c_int {
    // SAFETY: the caller passes two paths, as to this function.
    unsafe { renameat2(from_folder, from, to_folder, to, 0) }
}

/// `renameat2(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn renameat2(
    from_folder: c_int,
    from: *const c_char,
    to_folder: c_int,
    to: *const c_char,
    flags: c_uint,
) -> c_int {
    let kernel = || {
        // SAFETY: the kernel checks the pointers, and returns -1 if they are bad.
        answer(unsafe { libc::syscall(SYS_renameat2, from_folder, from, to_folder, to, flags) })
    };
    // SAFETY: the caller passes two paths.
    let paths = unsafe { (resolved(from_folder, from), resolved(to_folder, to)) };
    let (Some(disk), (Ok(from), Ok(to))) = (Disk::of_this_process(), paths) else {
        return kernel();
    };
    let Some(copies) = disk.copy_of(&from).zip(disk.copy_of(&to)) else { return kernel() };
    let Ok(_locked) = disk.lock() else { return failure() };
    match kernel() {
        0 => disk.rename(copies).map_or_else(|_| failure(), |()| 0),
        failed => failed,
    }
}

fn sync(call: c_long, number: RawFd) -> c_int {
    // SAFETY: the kernel checks the descriptor, and returns -1 if it is bad.
    let flags = unsafe { libc::fcntl(number, F_GETFL) };
    let synced = match Disk::of_this_process() {
        Some(disk) if flags != -1 => sync_to(disk, number, flags),
        _ => Ok(false),
    };
    match synced {
        Ok(true) => 0,
        // SAFETY: the kernel checks the descriptor, and returns -1 if it is bad.
        Ok(false) => answer(unsafe { libc::syscall(call, number) }),
        Err(_) => failure(),
    }
}

/// Syncs an open file, and returns whether it is on the disk.
fn sync_to(disk: &Disk, number: RawFd, flags: c_int) -> io::Result<bool> {
    let _locked = disk.lock()?;
    let path = path(number)?;
    let Some(copy) = disk.copy_of(&path) else { return Ok(false) };
    // SAFETY: the descriptor is open. It is not closed here, because that would free the process's
    // locks on the file.
    let file = ManuallyDrop::new(unsafe { File::from_raw_fd(number) });
    let reopened;
    let file = if flags & O_ACCMODE == O_WRONLY {
        // No lock is lost: a file with locks is opened for reading, too.
        reopened = File::open(&path)?;
        &reopened
    } else {
        &file
    };
    disk.sync(file, &path, &copy)?;
    Ok(true)
}

/// Returns the path to what a path in a folder names, which may be a link itself.
///
/// # Safety
/// `path` is a string of C.
unsafe fn resolved(folder: RawFd, name: *const c_char) -> io::Result<PathBuf> {
    // SAFETY: as above.
    let name = unsafe { CStr::from_ptr(name) };
    let folder = if folder == AT_FDCWD { env::current_dir()? } else { path(folder)? };
    let absolute = folder.join(Path::new(OsStr::from_bytes(name.to_bytes())));
    match (absolute.parent(), absolute.file_name()) {
        (Some(parent), Some(name)) => Ok(parent.canonicalize()?.join(name)),
        _ => Ok(absolute),
    }
}

/// Returns the path of an open file or folder, also after a rename.
fn path(number: RawFd) -> io::Result<PathBuf> {
    fs::read_link(format!("/proc/self/fd/{number}"))
}

/// Returns the answer of a function of the C library for that of the kernel.
fn answer(kernel: c_long) -> c_int {
    if kernel == 0 { 0 } else { -1 }
}

/// Reports an error of the disk to the caller.
fn failure() -> c_int {
    // SAFETY: it points to this thread's error number.
    unsafe { *libc::__errno_location() = EIO };
    -1
}
