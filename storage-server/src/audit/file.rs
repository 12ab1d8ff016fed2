//! The file of the audit log.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, Sender, SyncSender, channel, sync_channel},
    },
    thread,
    time::Duration,
};

use prometheus_client::metrics::counter::Counter;
use rustix::fs::OFlags;

use crate::causes::with_causes;

/// How many lines wait for the disk. Further ones are lost.
const MAX_WAITING: usize = 4096;
/// How long the last lines may take at the end.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// A file with a JSON object per line, to which the server adds refusals and the actions of operators.
///
/// A thread of its own writes it, so that a slow or full disk holds up no request. Lines that can't be
/// written are lost, and counted.
#[derive(Clone, Debug)]
pub struct AuditLog(Arc<Queue>);

/// The audit log can't be used.
#[derive(Debug, thiserror::Error)]
#[error("the audit log {} can't be written", path.display())]
pub struct AuditLogError {
    path: PathBuf,
    #[source]
    reason: io::Error,
}

impl AuditLog {
    /// Opens the file, or creates it for its owner and group.
    ///
    /// If the file is later moved away or deleted, as logrotate does, the next line is in a new one.
    ///
    /// # Errors
    /// If the file can't be opened for writing.
    pub fn open(path: &Path) -> Result<Self, AuditLogError> {
        let file = AuditFile::open(path)?;
        let (lines, waiting) = sync_channel(MAX_WAITING);
        let (has_ended, ended) = channel();
        let lost = Counter::default();
        let counter = lost.clone();
        thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || write_all(file, &waiting, &counter, has_ended))
            .map_err(|reason| AuditLogError { path: path.to_owned(), reason })?;
        Ok(Self(Arc::new(Queue { lines: Some(lines), lost, ended: Mutex::new(ended) })))
    }

    /// Queues a line.
    pub(crate) fn write(&self, line: String) {
        let lines = self.0.lines.as_ref().expect("it is there until the end");
        if lines.try_send(line).is_err() {
            self.0.lost.inc();
        }
    }

    /// How many lines were lost, as a metric.
    pub(crate) fn lost_lines(&self) -> Counter {
        self.0.lost.clone()
    }
}

/// The lines that wait for the thread.
#[derive(Debug)]
struct Queue {
    /// `None` at the end.
    lines: Option<SyncSender<String>>,
    lost: Counter,
    /// Disconnected once the thread has written the last line.
    ended: Mutex<Receiver<()>>,
}

/// Waits for the last lines, unless the disk takes too long.
impl Drop for Queue {
    fn drop(&mut self) {
        drop(self.lines.take());
        let ended = self.ended.get_mut().expect("no panic while it is held");
        let _ = ended.recv_timeout(END_TIMEOUT);
    }
}

fn write_all(mut file: AuditFile, waiting: &Receiver<String>, lost: &Counter, _ended: Sender<()>) {
    let mut is_failing = false;
    for line in waiting {
        match file.write_line(&line) {
            Ok(()) if is_failing => {
                is_failing = false;
                tracing::info!("the audit log {} is written again", file.path.display());
            }
            Ok(()) => {}
            Err(error) => {
                lost.inc();
                // The disk of the server's own log may be the same one.
                if !is_failing {
                    tracing::error!("{}. Its lines are lost", with_causes(&error));
                }
                is_failing = true;
            }
        }
    }
}

/// The file, opened for lines at its end.
#[derive(Debug)]
pub(crate) struct AuditFile {
    path: PathBuf,
    file: File,
    /// Which file it is, on which device.
    id: (u64, u64),
    /// Whether the file ends within a line, because the disk had no room for the rest.
    is_torn: bool,
}

impl AuditFile {
    /// Opens the file, or creates it.
    ///
    /// # Errors
    /// If the file can't be opened for writing.
    pub(crate) fn open(path: &Path) -> Result<Self, AuditLogError> {
        let open = || {
            let file = options().create(true).mode(0o640).open(path)?;
            let id = id(&file.metadata()?);
            Ok(Self { path: path.to_owned(), file, id, is_torn: false })
        };
        open().map_err(|reason| AuditLogError { path: path.to_owned(), reason })
    }

    /// Writes a line. If the path leads to another file by now, the line is in that one.
    ///
    /// # Errors
    /// If the file can't be opened again, or the line can't be written.
    pub(crate) fn write_line(&mut self, line: &str) -> Result<(), AuditLogError> {
        if fs::metadata(&self.path).ok().is_none_or(|metadata| id(&metadata) != self.id) {
            *self = Self::open(&self.path)?;
        }
        self.append(line).map_err(|reason| AuditLogError { path: self.path.clone(), reason })
    }

    fn append(&mut self, line: &str) -> io::Result<()> {
        let line = if self.is_torn { format!("\n{line}\n") } else { format!("{line}\n") };
        // One call of the system for the whole line: another process may write to the file, too.
        let mut rest = line.as_bytes();
        while !rest.is_empty() {
            match self.file.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    rest = &rest[written..];
                    self.is_torn = !rest.is_empty();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Tries whether the file could be opened, and creates nothing.
///
/// # Errors
/// If it could not.
pub(crate) fn check(path: &Path) -> Result<(), AuditLogError> {
    let opened = match options().open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            tempfile::tempfile_in(folder.unwrap_or(Path::new("."))).map(drop)
        }
        opened => opened.map(drop),
    };
    opened.map_err(|reason| AuditLogError { path: path.to_owned(), reason })
}

/// A pipe that nobody reads must not be waited for.
fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.append(true).custom_flags(OFlags::NONBLOCK.bits() as i32);
    options
}

fn id(metadata: &fs::Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}
