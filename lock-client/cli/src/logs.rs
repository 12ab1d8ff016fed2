//! Logs on stderr, for `--verbose` and `RUST_LOG`.

use std::{
    env,
    io::{self, IsTerminal, Write},
    sync::mpsc::{Sender, channel},
    thread,
    time::Duration,
};

use tracing_subscriber::EnvFilter;

/// What `--verbose` logs.
const VERBOSE: &str = "lock_client=debug,lock_client_cli=debug";
/// How long the end of the command waits until its logs are printed.
const PATIENCE: Duration = Duration::from_millis(500);

/// Logs that are printed on a thread of their own, because a write to stderr may block.
#[derive(Debug)]
pub(crate) struct Logs(Sender<Entry>);

#[derive(Debug)]
enum Entry {
    Text(Vec<u8>),
    /// Reports that everything before is printed.
    End(Sender<()>),
}

/// Starts the logs, if they were asked for. `RUST_LOG` decides before `--verbose`.
pub(crate) fn start(verbose: bool) -> Option<Logs> {
    let filter = match env::var("RUST_LOG") {
        Ok(filter) if !filter.is_empty() => filter,
        _ if verbose => VERBOSE.to_owned(),
        _ => return None,
    };
    let (entries, to_print) = channel();
    thread::spawn(move || {
        for entry in to_print {
            // If stderr is closed, there is nowhere else to print. Nobody may wait for the end.
            let _ = match entry {
                Entry::Text(text) => io::stderr().write_all(&text).ok(),
                Entry::End(done) => done.send(()).ok(),
            };
        }
    });
    let logs = Logs(entries);
    let writer = logs.0.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(move || Writer(writer.clone()))
        .with_ansi(io::stderr().is_terminal())
        .with_env_filter(EnvFilter::builder().parse_lossy(filter));
    // A program that runs this command as a part of itself may have a subscriber already.
    subscriber.try_init().is_ok().then_some(logs)
}

impl Drop for Logs {
    fn drop(&mut self) {
        let (done, printed) = channel();
        // The thread never ends before.
        let _ = self.0.send(Entry::End(done));
        let _ = printed.recv_timeout(PATIENCE);
    }
}

/// Passes one entry of the logs to the thread that prints it.
struct Writer(Sender<Entry>);

impl Write for Writer {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let _ = self.0.send(Entry::Text(text.to_vec()));
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
