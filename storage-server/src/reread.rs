//! Files that are read again and again, so that a change is in force without a restart.

use std::time::Duration;

use tokio::{task::spawn_blocking, time::sleep};

/// How often the files are read. A change is in force after two reads.
pub(crate) const READ_INTERVAL: Duration = Duration::from_secs(2);

/// Reads once.
pub(crate) async fn read_without_blocking<T: Send + 'static>(
    read: impl FnOnce() -> T + Send + 'static,
) -> T {
    spawn_blocking(read).await.expect("reading a file does not panic")
}

/// Reads again and again, and takes over what is not `in_force` yet.
pub(crate) async fn reread<T: Clone + PartialEq + Send + 'static>(
    mut in_force: T,
    read: impl Fn() -> T + Clone + Send + 'static,
    mut take_over: impl FnMut(T),
) {
    let mut last_read = in_force.clone();
    loop {
        sleep(READ_INTERVAL).await;
        // Wait until two reads agree: an editor may be writing the file just now.
        let now = read_without_blocking(read.clone()).await;
        if now != last_read {
            last_read = now;
        } else if now != in_force {
            in_force = now.clone();
            take_over(now);
        }
    }
}
