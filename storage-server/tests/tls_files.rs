//! The files of TLS: what other users may do with them, and what happens when a certificate expires.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command, time::Duration};

use testbed::{Authority, Certificate};

use crate::database::{Database, Ran};

/// Whether a server with this certificate could start.
async fn check(certificate: &Certificate) -> Ran {
    let Certificate { certificate, key } = certificate;
    let files = ["--tls-cert", certificate.to_str().unwrap(), "--tls-key", key.to_str().unwrap()];
    Database::sqlite().run(&[&files[..], &["--check"]].concat()).await
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[tokio::test]
async fn files_that_all_users_may_change_or_key_that_they_may_read_are_rejected() {
    let authority = Authority::new().unwrap();
    let files = authority.sign_for_loopback().unwrap();
    for (path, mode, reason) in [
        (&files.key, 0o644, Some("all users of this machine may read it")),
        (&files.key, 0o602, Some("all users of this machine may read it")),
        (&files.key, 0o640, None),
        (&files.certificate, 0o646, Some("all users of this machine may write to it")),
        (&files.certificate, 0o644, None),
    ] {
        set_mode(path, mode);
        let checked = check(&files).await;
        match reason {
            None => assert_eq!(checked.code, Some(0), "{checked:?}"),
            Some(reason) => {
                let error = checked.failed();
                let file = format!("the TLS file {} can't be used: {reason}", path.display());
                assert!(error.contains(&file), "{error}");
            }
        }
    }
}

/// The server would wait for a pipe, and read a device for ever.
#[tokio::test]
async fn file_that_has_no_end_is_rejected() {
    let authority = Authority::new().unwrap();
    let files = authority.sign_for_loopback().unwrap();
    let folder = files.key.parent().unwrap();
    let pipe = folder.join("pipe.key");
    assert!(Command::new("mkfifo").args(["-m", "600"]).arg(&pipe).status().unwrap().success());
    let large = folder.join("large.key");
    fs::write(&large, vec![b'x'; (1 << 20) + 1]).unwrap();
    set_mode(&large, 0o600);
    for (key, reason) in [(pipe, "it is not a regular file"), (large, "it has more than")] {
        let checked = check(&Certificate { key, ..files.clone() }).await;
        let error = checked.failed();
        assert!(error.contains(reason), "{error}");
    }
}

/// Only Linux lets the test set the clock of one process.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn certificate_that_expires_while_the_server_runs_is_logged_once() {
    use testbed::{Clock, process::Process, wait::until};

    use crate::{logs::PATIENCE, programs::STORAGE_SERVER};

    let database = Database::sqlite();
    let folder = database.folder.path();
    let clock = Clock::new(folder).unwrap();
    let authority = Authority::new().unwrap();
    let Certificate { certificate, key } = authority.sign_for_loopback().unwrap();
    let mut command = Command::new(STORAGE_SERVER);
    command.args(["--listen", "127.0.0.1:0", "--database-url", &database.url]);
    command.arg("--tls-cert").arg(&certificate).arg("--tls-key").arg(&key);
    clock.preload(&mut command);
    let mut server = Process::spawn("storage-server", &command, folder).unwrap();
    server.line(PATIENCE).await.unwrap();
    let count = || server.stderr().unwrap().matches("has expired").count();
    // It is valid for two days.
    assert_eq!(count(), 0);
    clock.jump(Duration::from_hours(47)).unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(count(), 0, "the control");
    clock.jump(Duration::from_hours(2)).unwrap();
    until(PATIENCE, || Ok(count() > 0)).await.unwrap();
    let line = format!("the certificate in {} has expired", certificate.display());
    assert!(server.stderr().unwrap().contains(&line));
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(count(), 1);
}
