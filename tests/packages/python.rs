//! The package for Python.

use std::process::Command;

use tempfile::TempDir;

use super::{passes, succeed};
use crate::languages::{drivers, root};

#[tokio::test(flavor = "multi_thread")]
async fn python_package_passes_its_tests_with_psycopg() {
    passes_its_tests(&["test_lease", "test_psycopg"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn python_package_passes_its_tests_with_sqlalchemy() {
    passes_its_tests(&["test_sqlalchemy"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn python_package_passes_its_tests_with_django() {
    passes_its_tests(&["test_django"]).await;
}

async fn passes_its_tests(modules: &[&str]) {
    let installed = install().await;
    let mut tests = python(&installed);
    tests.args(["-m", "unittest"]).args(modules).current_dir(root().join("fence/python/tests"));
    let printed = passes(tests).await;
    assert!(!printed.contains("Ran 0 tests"), "{printed}");
}

/// Installs the package as `pip install ./fence/python` does, with the build backend that is here
/// already, and so without a network.
pub(super) async fn install() -> TempDir {
    let folder = TempDir::with_prefix("fenced-").unwrap();
    let mut pip = Command::new(drivers("python").join("bin/python"));
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-cache-dir"]);
    pip.args(["--no-index", "--no-deps", "--no-build-isolation", "--target"]).arg(folder.path());
    pip.arg("./fence/python").current_dir(root());
    succeed(pip).await;
    folder
}

pub(super) fn python(installed: &TempDir) -> Command {
    let mut python = Command::new(drivers("python").join("bin/python"));
    python.env("PYTHONPATH", installed.path()).env("PYTHONDONTWRITEBYTECODE", "1");
    python
}
