//! The log on stderr, which never holds up the server.

use std::{
    convert::Infallible,
    io::{self, IsTerminal, Write},
    time::Duration,
};

use clap::ValueEnum;
use tokio::time::sleep;
use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;

/// How many lines wait for stderr, if nobody reads it. Further lines are dropped.
const MAX_WAITING: usize = 4096;
/// How often to report dropped lines.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);

/// How each line of the log looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Text for people.
    Text,
    /// A JSON object.
    Json,
}

/// The log on stderr. A thread of its own writes it: a pipe that nobody reads holds up only this
/// thread, and a closed one loses the lines.
#[derive(Debug)]
pub(crate) struct Log {
    writer: NonBlocking,
    dropped: ErrorCounter,
    format: LogFormat,
    /// When it is dropped, the last lines are written.
    _thread: WorkerGuard,
}

impl Log {
    /// Starts the log. A program that runs the server as a part of itself may have a subscriber
    /// already: then that one takes the log.
    pub(crate) fn to_stderr(format: LogFormat) -> Self {
        let (writer, thread) = NonBlockingBuilder::default()
            .lossy(true)
            .buffered_lines_limit(MAX_WAITING)
            .thread_name("log")
            .finish(io::stderr());
        let subscriber = tracing_subscriber::fmt()
            .with_writer(writer.clone())
            .with_ansi(io::stderr().is_terminal())
            .with_env_filter(
                EnvFilter::builder()
                    .with_default_directive(tracing::Level::INFO.into())
                    .from_env_lossy(),
            );
        let _ = match format {
            LogFormat::Text => subscriber.try_init(),
            LogFormat::Json => {
                subscriber.json().flatten_event(true).with_span_list(false).try_init()
            }
        };
        let dropped = writer.error_counter();
        Self { writer, dropped, format, _thread: thread }
    }

    /// Writes a message for the user.
    pub(crate) fn message(&mut self, message: &str) {
        match self.format {
            LogFormat::Text => {
                let _ = writeln!(self.writer, "storage-server: {message}");
            }
            LogFormat::Json => tracing::error!("{message}"),
        }
    }

    /// Reports how many lines were dropped, again and again.
    pub(crate) async fn report_dropped(&self) -> Infallible {
        let mut reported = 0;
        loop {
            sleep(REPORT_INTERVAL).await;
            let dropped = self.dropped.dropped_lines();
            if dropped > reported {
                let lines = dropped - reported;
                tracing::warn!(lines, "lines of this log were dropped: nobody read stderr");
                // Otherwise the report itself was dropped.
                if self.dropped.dropped_lines() == dropped {
                    reported = dropped;
                }
            }
        }
    }
}
