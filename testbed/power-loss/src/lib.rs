//! A library that keeps apart what a process has synced from what it has only written, when it is
//! preloaded into the process (`LD_PRELOAD`). A power loss can then be staged: all processes are
//! killed, and only what was synced is kept.
//!
//! The files below the folder `FENCED_DISK_FOLDER` are what the processes see: the page cache. The
//! folder `FENCED_DISK_SYNCED` is the disk. It begins as a copy of the other, and changes only as
//! here:
//!
//! - `fsync` and `fdatasync` of a file make its content, its length and its name durable, as ext4
//!   and XFS do. Processes may share the file.
//! - `fsync` of a folder makes deletions in it durable, and the names of new files. Their content
//!   needs a sync of its own.
//! - A rename is durable at once, if the renamed file was synced before.
//!
//! Nothing else makes anything durable. In particular, `O_SYNC`, `msync`, `sync` and `syncfs` don't.
//! Without these variables, the library changes nothing. Linux only.

#[cfg(target_os = "linux")]
mod calls;
#[cfg(target_os = "linux")]
mod disk;
