//! The file of the audit log.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

use prometheus_client::metrics::counter::Counter;
use rustix::fs::OFlags;
use tokio::{sync::oneshot, task::spawn_blocking, time::timeout};

use crate::causes::with_causes;

/// How many lines wait for the disk. Further ones are lost.
const MAX_WAITING: usize = 4096;
/// How long the last lines may take at the end.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// A file with a JSON object per line, to which the server adds rejections and the actions of operators.
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
    /// Opens the file, or creates it for its owner only.
    ///
    /// If the file is later moved away or deleted, as logrotate does, the next line is in a new one.
    ///
    /// # Errors
    /// If the file can't be opened for writing.
    pub fn open(path: &Path) -> Result<Self, AuditLogError> {
        let file = AuditFile::open(path)?;
        let (log, waiting) = Self::new(MAX_WAITING);
        let lost = log.lost_lines();
        thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || write_all(file, waiting, &lost))
            .map_err(|reason| AuditLogError { path: path.to_owned(), reason })?;
        Ok(log)
    }

    fn new(max_waiting: usize) -> (Self, Receiver<Entry>) {
        let (entries, waiting) = sync_channel(max_waiting);
        let queue = Queue { entries, lost: Counter::default(), overflowed: AtomicU64::new(0) };
        (Self(Arc::new(queue)), waiting)
    }

    /// Queues a line. If the queue is full, the line is lost.
    pub(crate) fn write(&self, line: String) {
        if self.0.entries.try_send(Entry::Line(line)).is_err() {
            self.0.lost.inc();
            self.0.overflowed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Logs how many lines the queue had no place for since the last call.
    pub(crate) fn report_overflow(&self) {
        let count = self.0.overflowed.swap(0, Ordering::Relaxed);
        if count > 0 {
            tracing::error!(count, "lines of the audit log are lost, because its disk is too slow");
        }
    }

    /// Waits until all queued lines are written, unless the disk takes too long.
    pub(crate) async fn flush(&self) {
        let (flushed, is_flushed) = oneshot::channel();
        let entries = self.0.entries.clone();
        let flush = async {
            // The queue may be full.
            let _ = spawn_blocking(move || entries.send(Entry::Flush(flushed))).await;
            let _ = is_flushed.await;
        };
        if timeout(END_TIMEOUT, flush).await.is_err() {
            tracing::error!("the last lines of the audit log were not written in time");
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
    entries: SyncSender<Entry>,
    lost: Counter,
    /// How many of them found no place in the queue, and are not logged yet.
    overflowed: AtomicU64,
}

#[derive(Debug)]
enum Entry {
    Line(String),
    /// Reported once the lines before it are written.
    Flush(oneshot::Sender<()>),
}

fn write_all(mut file: AuditFile, waiting: Receiver<Entry>, lost: &Counter) {
    let mut is_failing = false;
    for entry in waiting {
        let line = match entry {
            Entry::Line(line) => line,
            Entry::Flush(flushed) => {
                // The server may wait no longer.
                let _ = flushed.send(());
                continue;
            }
        };
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
    /// The same file, to read its end; `None` if it has none or may not be read.
    reader: Option<File>,
}

impl AuditFile {
    /// Opens the file, or creates it.
    ///
    /// # Errors
    /// If the file can't be opened for writing.
    pub(crate) fn open(path: &Path) -> Result<Self, AuditLogError> {
        let open = || {
            let file = options().create(true).mode(0o600).open(path)?;
            let metadata = file.metadata()?;
            let reader = metadata.is_file().then(|| File::open(path).ok()).flatten();
            Ok(Self { path: path.to_owned(), file, id: id(&metadata), reader })
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
        let line = if self.is_torn() { format!("\n{line}\n") } else { format!("{line}\n") };
        // Usually one call of the system for the whole line: another process may write, too.
        self.file.write_all(line.as_bytes())
    }

    /// Whether the file ends within a line, because of a crash or a full disk.
    fn is_torn(&self) -> bool {
        let last_byte = || -> io::Result<Option<u8>> {
            let Some(reader) = &self.reader else { return Ok(None) };
            let Some(last) = reader.metadata()?.len().checked_sub(1) else { return Ok(None) };
            let mut byte = [0];
            reader.read_exact_at(&mut byte, last)?;
            Ok(Some(byte[0]))
        };
        last_byte().is_ok_and(|byte| byte.is_some_and(|byte| byte != b'\n'))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_find_no_place_are_counted() {
        let (log, waiting) = AuditLog::new(1);
        log.write("one".to_owned());
        assert_eq!((log.lost_lines().get(), log.0.overflowed.load(Ordering::Relaxed)), (0, 0));
        log.write("two".to_owned());
        log.write("three".to_owned());
        assert_eq!((log.lost_lines().get(), log.0.overflowed.load(Ordering::Relaxed)), (2, 2));
        log.report_overflow();
        assert_eq!((log.lost_lines().get(), log.0.overflowed.load(Ordering::Relaxed)), (2, 0));
        assert!(matches!(waiting.recv().unwrap(), Entry::Line(line) if line == "one"));
        assert!(waiting.try_recv().is_err());
    }

    #[tokio::test]
    async fn queued_lines_are_written_after_a_flush() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let log = AuditLog::open(&path).unwrap();
        for number in 0..1_000 {
            log.write(number.to_string());
        }
        log.flush().await;
        assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 1_000);
    }
}
