//! Private servers of object storage, which speak S3 or the protocol of Azure.

pub(crate) mod azurite;
mod s3s_fs;
mod seaweedfs;

use std::{fs, net::SocketAddr, path::PathBuf, time::Duration};

use anyhow::bail;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::{http, process::Process};

/// SeaweedFS takes 3 seconds, and far longer on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How often other ports are tried if another process takes a free one first.
const PORT_ATTEMPTS: usize = 20;

/// A private server of object storage on a free port of 127.0.0.1, with its data in a temporary folder.
/// It has one [bucket](Self::BUCKET) and one [user](Self::ACCESS_KEY_ID).
#[derive(Debug)]
pub struct ObjectStorage {
    process: Process,
    address: SocketAddr,
    /// Files of the server outside of its folder.
    strays: Vec<PathBuf>,
    _folder: TempDir,
}

/// The outcome of a wait for an answer.
enum Answer {
    Ready,
    AddressInUse,
}

impl ObjectStorage {
    /// The bucket, which is empty at first.
    pub const BUCKET: &'static str = "fenced";
    /// The key of the user, who may do everything: for `AWS_ACCESS_KEY_ID`.
    pub const ACCESS_KEY_ID: &'static str = "fenced";
    /// The secret of the user: for `AWS_SECRET_ACCESS_KEY`.
    pub const SECRET_ACCESS_KEY: &'static str = "fenced-secret";

    /// The variables that give a program the keys of the user.
    pub const VARIABLES: [(&'static str, &'static str); 2] = [
        ("AWS_ACCESS_KEY_ID", Self::ACCESS_KEY_ID),
        ("AWS_SECRET_ACCESS_KEY", Self::SECRET_ACCESS_KEY),
    ];

    /// Returns its process, to pause or kill it.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Returns the address at which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL at which clients of S3 reach it.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the URL of a folder of its bucket, for `lab` and for the storage server.
    pub fn url(&self, folder: &str) -> String {
        Self::url_through(&self.endpoint(), folder)
    }

    /// Returns the URL of a folder of the bucket, for clients that reach it at another endpoint: that of a
    /// proxy.
    pub fn url_through(endpoint: &str, folder: &str) -> String {
        format!("s3://{}/{folder}?endpoint={endpoint}", Self::BUCKET)
    }

    /// Asks until the answer will do, or the server has ended because a port was taken.
    async fn answers(
        &mut self,
        address: SocketAddr,
        request: &str,
        will_do: impl Fn(&str) -> bool,
    ) -> anyhow::Result<Answer> {
        let begun = Instant::now();
        loop {
            if self.process.has_ended()? {
                let stderr = self.process.stderr()?.to_lowercase();
                if stderr.contains("address already in use") {
                    return Ok(Answer::AddressInUse);
                }
                bail!(self.process.account("has ended"));
            }
            let answer = http::ask(address, request).await;
            if answer.as_ref().is_ok_and(|answer| will_do(answer)) {
                return Ok(Answer::Ready);
            }
            if begun.elapsed() > START_TIMEOUT {
                bail!(self.process.account(&format!("answers {request} by {answer:?}")));
            }
            sleep(POLL_INTERVAL).await;
        }
    }
}

impl Drop for ObjectStorage {
    fn drop(&mut self) {
        // It takes 25 seconds to end by itself, and has nothing to keep.
        let _ = self.process.kill();
        for stray in &self.strays {
            // It may not have been made.
            let _ = fs::remove_file(stray);
        }
    }
}
