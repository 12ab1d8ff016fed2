//! The private server of object storage leaves nothing behind.

use std::{
    fs,
    path::{Path, PathBuf},
};

use testbed::{ObjectStorage, process::lives};

/// Returns the Unix sockets at which a process listens.
fn sockets(pid: u32) -> Vec<PathBuf> {
    let open_files = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let open_files: Vec<_> = open_files
        .filter_map(|file| fs::read_link(file.unwrap().path()).ok())
        .map(|target| target.display().to_string())
        .collect();
    let sockets = fs::read_to_string("/proc/net/unix").unwrap();
    let listening = sockets.lines().skip(1).filter_map(|line| {
        let columns: Vec<_> = line.split_whitespace().collect();
        let open_file = format!("socket:[{}]", columns[6]);
        open_files.contains(&open_file).then(|| columns.get(7).map(PathBuf::from))?
    });
    listening.collect()
}

#[tokio::test]
async fn seaweedfs_leaves_nothing_behind() {
    let mut storage = ObjectStorage::start_seaweedfs().await.unwrap();
    let pid = storage.process().pid().as_raw_nonzero().get().cast_unsigned();
    let sockets = sockets(pid);
    let (outside, inside): (Vec<_>, Vec<_>) =
        sockets.iter().partition(|socket| socket.parent() == Some(Path::new("/tmp")));
    assert!(outside.len() >= 4 && inside.len() >= 2, "{sockets:?}");
    drop(storage);
    assert!(!lives(pid));
    for socket in &sockets {
        assert!(!socket.exists(), "{} is left", socket.display());
    }
    let folder = inside[0].parent().unwrap();
    assert!(!folder.exists(), "{} is left", folder.display());
}
