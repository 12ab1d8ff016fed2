//! The wait for a lock, as users see it: who holds the lock, for how long, and who waits before.

use std::{convert::Infallible, time::Duration};

use fence::ResourceName;
use lock_client::{
    Locks, Order, Unanswered,
    backend::{HeldLock, Status},
};
use tokio::time::{sleep, timeout};

use crate::stderr::{self, shows_progress};

/// How long a wait lasts before it is reported, and between two reports.
const INTERVAL: Duration = Duration::from_secs(1);

/// Takes the first report of a wait, if somebody listens.
pub(crate) type Listener<'a> = Option<Box<dyn FnOnce(&Status) + 'a>>;

/// Reports a wait for a lock, on the terminal and to a listener, until it is dropped.
pub(crate) async fn report(
    locks: &Locks,
    name: &ResourceName,
    order: Order,
    mut listener: Listener<'_>,
) -> Infallible {
    let (mut ahead, mut was_said) = (u64::MAX, false);
    loop {
        sleep(INTERVAL).await;
        let mut unanswered = locks.unanswered().map(|unanswered| retrying(&unanswered));
        let mut status = None;
        if unanswered.is_none() {
            if !shows_progress() && listener.is_none() {
                continue;
            }
            match timeout(INTERVAL, locks.status(name)).await {
                Ok(answer) => status = answer.ok(),
                Err(_) => unanswered = Some(format!("no answer from {} yet", locks.address())),
            }
        }
        if let Some(line) = unanswered {
            // Where no progress is shown, it is said once.
            if !was_said && !shows_progress() {
                stderr::print(line);
            } else {
                stderr::show_progress(line);
            }
            was_said = true;
            continue;
        }
        was_said = false;
        let Some(status) = status else { continue };
        if let Some(listener) = listener.take() {
            listener(&status);
        }
        // In the queue, this process is one of those that wait. Later ones wait behind it.
        ahead = ahead.min(match order {
            Order::Fair => status.queued.saturating_sub(1),
            Order::Unordered => status.queued,
        });
        stderr::show_progress(line(name, &status, ahead));
    }
}

/// Says why the lock service is asked again, and for how long.
pub(crate) fn retrying(unanswered: &Unanswered) -> String {
    let left = unanswered.until.remaining().as_secs_f64().ceil();
    format!("{}; retrying for {left:.0} s", unanswered.reason)
}

fn line(name: &ResourceName, status: &Status, ahead: u64) -> String {
    let mut line = format!("waiting for {name}");
    if let Some(held) = &status.held {
        line = format!("{line}: held by {}", holder(held));
        if let Some(left) = held.remaining {
            line = format!("{line}, {:.0} s left", left.as_secs_f64().ceil());
        }
    }
    if ahead > 0 { format!("{line}, {ahead} ahead") } else { line }
}

/// Describes the holder, and the queue, of a lock that was not acquired.
pub(crate) fn describe(status: &Status) -> Option<String> {
    let holder = holder(status.held.as_ref()?);
    Some(match status.queued {
        0 => format!("holder {holder}"),
        queued => format!("holder {holder}, {queued} in the queue"),
    })
}

/// Names a holder: by its label, or else by a part of the holder, which as a whole is the proof of
/// holding. The label comes from another client: its control characters don't reach the terminal.
fn holder(held: &HeldLock) -> String {
    let label: String = held.label.chars().filter(|c| !c.is_control()).collect();
    if label.is_empty() { held.ownership.holder.redacted() } else { label }
}

#[cfg(test)]
mod tests {
    use lock_client::backend::Ownership;

    use super::*;

    #[test]
    fn holder_remaining_time_and_queue_are_in_one_line() {
        let name = "deploy".parse().unwrap();
        let holder = "0123456789abcdef".parse().unwrap();
        let token = fence::Token::new(34).unwrap();
        let remaining = Some(Duration::from_millis(24_100));
        let ownership = Ownership { holder, grant: token };
        let held = HeldLock {
            token,
            ownership,
            remaining,
            since_ms: None,
            label: String::new(),
            nodes: None,
        };
        let of = |label: &str| {
            let held = Some(HeldLock { label: label.to_owned(), ..held.clone() });
            Status { held, last_token: Some(34), queued: 2 }
        };
        for (label, shown) in [
            ("", "01234567..."),
            ("web-3 (pid 812)", "web-3 (pid 812)"),
            ("web-3 \u{1b}[2J(pid 812)", "web-3 [2J(pid 812)"),
        ] {
            let expected = format!("waiting for deploy: held by {shown}, 25 s left, 2 ahead");
            assert_eq!(line(&name, &of(label), 2), expected);
            assert_eq!(describe(&of(label)), Some(format!("holder {shown}, 2 in the queue")));
        }
        let free = Status { held: None, ..of("") };
        assert_eq!(line(&name, &free, 0), "waiting for deploy");
        assert_eq!(describe(&free), None);
    }
}
