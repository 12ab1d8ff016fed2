//! The run step of the image, outside of a container.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use tempfile::TempDir;
use testbed::process::Process;

use crate::programs::STORAGE_SERVER;
use crate::wire;

const PATIENCE: Duration = Duration::from_secs(30);

/// In a namespace of its own, makes all file systems but the folder read-only, gives up all privileges,
/// and runs the rest of the arguments in the folder.
const READ_ONLY_ROOT: &str = "
    set -e
    mount --bind \"$1\" \"$1\"
    awk '{ print $5 }' /proc/self/mountinfo | while read -r point; do
        [ \"$point\" = \"$1\" ] || mount -o remount,bind,ro \"$point\" 2> /dev/null || true
    done
    cd \"$1\"
    shift
    exec setpriv --no-new-privs --bounding-set=-all --inh-caps=-all \"$@\"";

fn image_runs(folder: &Path, arguments: &[&str]) -> Process {
    let ops = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ops").canonicalize().unwrap();
    let program: PathBuf = STORAGE_SERVER.into();
    let mut path = program.parent().unwrap().as_os_str().to_owned();
    path.push(":/usr/bin:/bin");
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", READ_ONLY_ROOT, "sh"]);
    command.arg(folder).arg(ops.join("run")).args(arguments);
    command.env("PATH", path).env("FENCED_CONFIG", ops.join("image.toml"));
    Process::spawn("image", &command, folder).unwrap()
}

#[tokio::test]
async fn image_needs_nothing_but_its_volume() {
    let folder = TempDir::with_prefix("fenced-").unwrap();
    let mut process = image_runs(folder.path(), &["--listen", "127.0.0.1:0"]);
    let line = process.line(PATIENCE).await.unwrap();
    let url = line.strip_prefix("listening on ").unwrap();
    let written =
        wire::request(url, "PUT", "/v1/resources/r", &[("Fencing-Token", "34")], "x").await;
    assert_eq!(written.status, 201);
    assert!(folder.path().join("fenced.db").exists());

    // The control: nothing else can be written.
    let other = TempDir::with_prefix("fenced-").unwrap();
    let database = format!("sqlite:{}", other.path().join("fenced.db").display());
    let arguments = ["--listen", "127.0.0.1:0", "--database-url", &database];
    let mut process = image_runs(folder.path(), &arguments);
    assert_eq!(process.exit(PATIENCE).await.unwrap().code(), Some(1));
    let error = process.stderr().unwrap();
    assert!(error.contains("can't open sqlite:"), "{error}");
}

/// As compose.yaml says.
#[tokio::test]
async fn image_makes_and_uses_an_auth_file_in_its_volume() {
    let folder = TempDir::with_prefix("fenced-").unwrap();
    let new = ["auth", "new", "--auth-file", "auth.toml", "--name", "me", "--prefix", ""];
    let mut process = image_runs(folder.path(), &[&new[..], &["--allow", "list"]].concat());
    let token = process.line(PATIENCE).await.unwrap();
    let arguments = ["--listen", "127.0.0.1:0", "--auth-file", "auth.toml"];
    let mut process = image_runs(folder.path(), &arguments);
    let line = process.line(PATIENCE).await.unwrap();
    let url = line.strip_prefix("listening on ").unwrap();
    let authorization = format!("Bearer {token}");
    let headers = [("Authorization", authorization.as_str())];
    assert_eq!(wire::request(url, "GET", "/v1/resources", &headers, "").await.status, 200);
    // A page on the web has no token.
    assert_eq!(wire::request(url, "GET", "/v1/resources", &[], "").await.status, 401);
}

/// The image's own address is open to the container's network.
#[tokio::test]
async fn image_takes_its_options_from_its_config_file() {
    let folder = TempDir::with_prefix("fenced-").unwrap();
    let mut process = image_runs(folder.path(), &["config"]);
    let mut printed = String::new();
    while let Ok(line) = process.line(PATIENCE).await {
        printed += &format!("{line}\n");
    }
    assert!(printed.contains("listen = \"0.0.0.0:8034\"\n"), "{printed}");
}
