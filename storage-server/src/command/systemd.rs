//! systemd, or another parent that speaks like it: the socket that it passes, and notices to it.

use anyhow::{Context, ensure};
use listenfd::ListenFd;
use sd_notify::NotifyState;
use tokio::net::TcpListener;

/// Takes the socket that the parent has opened and passed, if there is one.
pub(super) fn passed_listener() -> anyhow::Result<Option<TcpListener>> {
    let mut sockets = ListenFd::from_env();
    ensure!(sockets.len() <= 1, "the server takes one socket, and was passed {}", sockets.len());
    let listener = sockets.take_tcp_listener(0).context("the passed socket can't be used")?;
    let Some(listener) = listener else { return Ok(None) };
    listener.set_nonblocking(true)?;
    Ok(Some(TcpListener::from_std(listener)?))
}

/// Notifies the parent that the server accepts requests.
pub(super) fn notify_ready() {
    notify(NotifyState::Ready);
}

/// Notifies the parent that the server ends.
pub(super) fn notify_stopping() {
    notify(NotifyState::Stopping);
}

fn notify(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(%error, "the parent was not notified");
    }
}
