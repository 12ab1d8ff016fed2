//! Whether an SQLite file can lose an acknowledged fence.

use std::{fs, io};

use super::integrity::{check_integrity, path};
use crate::store::{
    doctor::{Examination, Finding, Verdict},
    error::OpenError,
};

const UNSEEN: &str = "whether the disk keeps what was synced; the loss of the disk, after which the \
                      fences are as old as the backup; a backup that was copied into the file";

/// Examines the file, and doesn't create it. A server itself sets what it needs: WAL mode, and
/// `synchronous=FULL`.
pub(in crate::store) async fn examine(url: &str) -> Result<Examination, OpenError> {
    let file = path(url)?;
    let failed =
        |error: io::Error| OpenError::Connect { database: url.to_owned(), source: error.into() };
    fs::metadata(&file).map_err(failed)?;
    let (verdict, found) = match check_integrity(&file, url).await {
        Ok(()) => (Verdict::Ok, "whole".to_owned()),
        Err(OpenError::Damaged { reason, .. }) => (Verdict::Wrong, reason),
        Err(error) => return Err(error),
    };
    let why = "A damaged file has lost rows. Don't repair it: restore a backup.";
    let findings = vec![
        Finding { check: "structure", verdict, found, why },
        #[cfg(target_os = "linux")]
        file_system(&file).map_err(failed)?,
    ];
    Ok(Examination { database: url.to_owned(), findings, unseen: UNSEEN })
}

/// The file systems that are unfit, as statfs(2) knows them.
#[cfg(target_os = "linux")]
const UNFIT: [(u32, &str); 6] = [
    (0x0102_1994, "tmpfs, which is in memory"),
    (0x8584_58f6, "ramfs, which is in memory"),
    (0x6969, "NFS, a network file system"),
    (0x517b, "SMB, a network file system"),
    (0xff53_4d42, "CIFS, a network file system"),
    (0xfe53_4d42, "SMB, a network file system"),
];

#[cfg(target_os = "linux")]
fn file_system(file: &std::path::Path) -> io::Result<Finding> {
    // The type of the number differs between processors. No magic number has more bits.
    let kind = rustix::fs::statfs(file)?.f_type as u32;
    let unfit = UNFIT.iter().find(|(unfit, _)| *unfit == kind);
    Ok(Finding {
        check: "file system",
        verdict: Verdict::wrong_if(unfit.is_some()),
        found: unfit.map_or_else(|| format!("type {kind:#x}"), |(_, name)| (*name).to_owned()),
        why: "What is in memory is lost with the machine. Over a network, SQLite's locks and its log \
              in shared memory are not safe.",
    })
}
