//! What the server tells systemd, and the units in `ops/`.

use std::{
    fs,
    os::unix::net::UnixDatagram,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use rustix::process::Signal;
use tempfile::TempDir;
use testbed::{installed, process::Process};

use crate::programs::STORAGE_SERVER;

const PATIENCE: Duration = Duration::from_secs(30);
/// The highest exposure that `systemd-analyze security` may find, from 0 to 10, in tenths.
const MAX_EXPOSURE: &str = "40";

fn ops(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../ops").join(file)
}

#[tokio::test]
async fn parent_is_notified_of_start_and_stop() {
    let folder = TempDir::with_prefix("fenced-").unwrap();
    let path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let notice = || {
        let mut bytes = [0; 256];
        let length = socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    };
    let mut command = Command::new(STORAGE_SERVER);
    command.args(["--listen", "127.0.0.1:0", "--database-url", "sqlite:fenced.db"]);
    command.current_dir(folder.path()).env("NOTIFY_SOCKET", &path);
    let mut process = Process::spawn("storage-server", &command, folder.path()).unwrap();
    assert_eq!(notice(), "READY=1\n");
    process.signal(Signal::TERM).unwrap();
    assert_eq!(notice(), "STOPPING=1\n");
    assert!(process.exit(PATIENCE).await.unwrap().success());
}

#[tokio::test]
async fn wrong_passed_sockets_are_rejected() {
    let folder = TempDir::with_prefix("fenced-").unwrap();
    // Descriptor 3 is no socket; and two are too many.
    for (sockets, reason) in [("1", "the passed socket can't be used"), ("2", "was passed 2")] {
        let mut command = Command::new("bash");
        let pass = "exec 3< /dev/null 4< /dev/null; export LISTEN_PID=$$; exec \"$@\"";
        command.args(["-c", pass, "bash", STORAGE_SERVER]).env("LISTEN_FDS", sockets);
        command.current_dir(folder.path());
        let mut process = Process::spawn("storage-server", &command, folder.path()).unwrap();
        assert_eq!(process.exit(PATIENCE).await.unwrap().code(), Some(1));
        let error = process.stderr().unwrap();
        assert!(error.contains(reason), "{error}");
    }
}

/// The exit code of `systemd-analyze security`, and its output.
fn security(unit: &Path) -> (bool, String) {
    let analyze = installed("systemd-analyze", &[], "the package systemd").unwrap();
    let mut command = Command::new(analyze);
    command.args(["security", "--offline=true", "--threshold", MAX_EXPOSURE]).arg(unit);
    let output = command.output().unwrap();
    (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn service_is_hardened() {
    let (is_hardened, report) = security(&ops("storage-server.service"));
    assert!(is_hardened, "{report}");

    // The control: without its hardening, the same service is exposed.
    let folder = TempDir::with_prefix("fenced-").unwrap();
    let unit = fs::read_to_string(ops("storage-server.service")).unwrap();
    let (service, _hardening) = unit.split_once("\n# Hardening").unwrap();
    let exposed = folder.path().join("storage-server.service");
    fs::write(&exposed, service).unwrap();
    let (is_hardened, report) = security(&exposed);
    assert!(!is_hardened, "{report}");
}

#[test]
fn units_have_no_mistake() {
    let folder = TempDir::with_prefix("fenced-").unwrap();
    // The program must exist for the check.
    let unit = fs::read_to_string(ops("storage-server.service")).unwrap();
    let unit = unit.replace("/usr/local/bin/storage-server", STORAGE_SERVER);
    fs::write(folder.path().join("storage-server.service"), &unit).unwrap();
    fs::copy(ops("storage-server.socket"), folder.path().join("storage-server.socket")).unwrap();
    let verify = |unit: &str| {
        let analyze = installed("systemd-analyze", &[], "the package systemd").unwrap();
        let mut command = Command::new(analyze);
        command.args(["verify", "--man=no", "--recursive-errors=no", unit]);
        let output = command.current_dir(folder.path()).output().unwrap();
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let mistakes = |report: String| {
        report.lines().any(|line| line.contains("storage-server.") || line.contains("Unknown"))
    };
    for unit in ["./storage-server.service", "./storage-server.socket"] {
        let report = verify(unit);
        assert!(!mistakes(report.clone()), "{report}");
    }
    // The control: a misspelt line is found.
    fs::write(
        folder.path().join("storage-server.service"),
        unit.replace("ProtectHome", "ProtectHom"),
    )
    .unwrap();
    assert!(mistakes(verify("./storage-server.service")));
}
