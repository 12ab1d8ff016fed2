//! The disk that a file is on.

use std::path::Path;

use crate::check::{Check, Verdict};

/// The file systems over a network, as statfs(2) knows them: NFS, SMB, CIFS, and SMB in version 2.
const NETWORK: [u32; 4] = [0x6969, 0x517b, 0xff53_4d42, 0xfe53_4d42];
/// Those in memory: tmpfs and ramfs.
const MEMORY: [u32; 2] = [0x0102_1994, 0x8584_58f6];

/// Checks that the file system is on this machine, and not in memory.
pub(crate) fn file_system(file: &Path) -> Check {
    const NAME: &str = "file_system";
    // The type of the number differs between processors. No magic number has more bits.
    let kind = match rustix::fs::statfs(file) {
        Ok(system) => system.f_type as u32,
        Err(error) => {
            let found = format!("it could not be seen: {error}");
            return Check::unseen(NAME, found, "make sure that it is on a disk of this machine");
        }
    };
    Check::ok(NAME, format!("type {kind:#x}"))
        .unless(
            !NETWORK.contains(&kind),
            Verdict::Unfit,
            "it is a network's, whose file locks may not work between machines: then two holders get one token, or the \
             file is corrupted",
            "keep the file on a disk of this machine, for the processes of it only",
        )
        .unless(
            !MEMORY.contains(&kind),
            Verdict::UnfitForFence,
            "it is in memory, which is lost with the machine",
            "keep the file on a disk",
        )
}
