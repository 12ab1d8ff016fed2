//! The package for Node.

use std::{fs, path::PathBuf, process::Command};

use tempfile::TempDir;

use super::{passes, succeed};
use crate::languages::{drivers, root};

#[tokio::test(flavor = "multi_thread")]
async fn node_package_passes_its_tests() {
    let installed = install().await;
    let mut tests = Command::new("node");
    tests.args(["--test", "--test-reporter=spec"]).current_dir(installed.path());
    for test in ["claims.test.mjs", "lease.test.mjs", "transactions.test.mjs"] {
        tests.arg(test);
    }
    let printed = passes(tests).await;
    assert!(printed.contains("the same program without fenced loses an update"), "{printed}");
}

/// Installs the package beside the driver as `npm install ./fence/node` does, but without a
/// network. Its tests lie there as well, so that they import what is installed.
pub(super) async fn install() -> TempDir {
    let folder = TempDir::with_prefix("fenced-").unwrap();
    let mut copy = Command::new("cp");
    copy.arg("-R").arg(drivers("node").join(".")).arg(folder.path());
    succeed(copy).await;
    let mut npm = Command::new("npm");
    npm.args(["install", "--offline", "--no-audit", "--no-fund", "--loglevel=error"]);
    npm.arg(package()).current_dir(folder.path());
    succeed(npm).await;
    for file in fs::read_dir(package().join("test")).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), folder.path().join(file.file_name())).unwrap();
    }
    folder
}

fn package() -> PathBuf {
    root().join("fence/node")
}
