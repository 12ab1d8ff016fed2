//! The words for each event, for readers who do not know what fencing is.

use anstyle::{AnsiColor, Style};
use fence::Token;

use super::text::quoted;
use crate::record::{Actor, Checks, Event, EventKind, Reason};

const PLAIN: Style = Style::new();
const GOOD: Style = AnsiColor::Green.on_default();
const BAD: Style = AnsiColor::Red.on_default().bold();
const ODD: Style = AnsiColor::Yellow.on_default();

/// The storage's value before and after an event, and what the storage checks.
pub(super) struct Stored<'a> {
    pub(super) checks: Option<Checks>,
    pub(super) before: Option<&'a str>,
    pub(super) after: Option<&'a str>,
}

/// The words for an event, and their style.
pub(super) fn words(event: &Event, stored: &Stored<'_>) -> (String, Style) {
    let token = event.token.map_or_else(String::new, |token| token.to_string());
    match &event.kind {
        EventKind::Started => plain("starts"),
        EventKind::StoreIs { store } => plain(format!("its store is {store}")),

        // The lock service.
        EventKind::CounterPreset if token.is_empty() => plain("its counter starts at 0"),
        EventKind::CounterPreset => plain(format!("last token: {token}")),
        EventKind::CounterFromTheClock => plain("its counter will start at the clock"),
        EventKind::Restarted { keys } => odd(format!("is KILLED, and restarts with {keys} keys")),
        EventKind::SnapshotSaved => plain("a snapshot of it is saved"),
        EventKind::SnapshotRestored => odd("is RESTORED from the snapshot"),
        EventKind::InStep => plain("has all that the primary has"),
        EventKind::CutOff => odd("is CUT OFF from its primary"),
        EventKind::Promoted => odd("is PROMOTED: it is the lock service now"),
        EventKind::LeaseExpired { whose } => odd(format!("{}'s lease EXPIRES", whose.title())),
        EventKind::LockRemains { remaining_ms: Some(remaining) } => {
            good(format!("the lock expires in {}", seconds(*remaining)))
        }
        EventKind::LockRemains { remaining_ms: None } => bad("the lock NEVER EXPIRES"),
        EventKind::LockDeleted { whose } => bad(format!("{}'s lock IS DELETED", whose.title())),
        EventKind::LockForgotten { whose } => {
            bad(format!("has FORGOTTEN {}'s lock", whose.title()))
        }
        EventKind::LockKept { whose } => good(format!("{} keeps the lock", whose.title())),
        EventKind::WaitedFor { waiters } => plain(format!("{waiters} clients wait for the lock")),
        EventKind::Done { scripts, commands } => {
            plain(format!("has run {scripts} scripts for them ({commands} commands)"))
        }
        EventKind::Stock { left, sold, items } if sold > items => {
            bad(format!("{left} items left, {sold} sold: TOO MANY"))
        }
        EventKind::Stock { left, sold, .. } => plain(format!("{left} items left, {sold} sold")),

        // The network.
        EventKind::RequestHeld => odd(format!("HOLDS BACK the write with token {token}")),
        EventKind::RequestDelivered => odd(format!("DELIVERS the write with token {token}")),
        EventKind::ClientCutOff { client } => {
            odd(format!("{} is CUT OFF from the lock", client.title()))
        }
        EventKind::ClientConnected { client } => {
            plain(format!("{} can reach the lock again", client.title()))
        }

        // The database beneath the storage.
        EventKind::StandbysCutOff => odd("the standbys are CUT OFF from the primary"),
        EventKind::CommitWaits => plain("a commit WAITS for a standby"),
        EventKind::PrimaryKilled => odd("the primary is KILLED"),
        EventKind::PrimaryCutOff => odd("the primary is CUT OFF, with client 1"),
        EventKind::StandbyPromoted if token.is_empty() => odd("a standby is PROMOTED"),
        EventKind::StandbyPromoted => {
            odd(format!("a standby is PROMOTED: its fence is at {token}"))
        }
        EventKind::AcceptedByOldPrimary(_) => {
            bad(format!("the old primary ACCEPTS {token} BESIDE the new one"))
        }

        // Several nodes.
        EventKind::Unreachable { nodes } => {
            odd(format!("{nodes} {} CUT OFF from all clients", verb(nodes, "is", "are")))
        }
        EventKind::ReachableAgain { nodes } => {
            plain(format!("{nodes} {} back, with all data", verb(nodes, "is", "are")))
        }
        EventKind::Forgot { nodes, keys } => {
            let with = if *keys == 0 { "empty" } else { "on an old copy" };
            odd(format!("{nodes} is KILLED, restarts {with}, and has FORGOTTEN the lock"))
        }
        EventKind::ClockJumped { nodes, seconds } => {
            odd(format!("{nodes}'s clock JUMPS by {seconds} s: client 1's lease expires there"))
        }
        EventKind::RepliesLost { nodes } => {
            odd(format!("{nodes} grant the lock to client 1, and their replies ARE LOST"))
        }
        EventKind::Taken { nodes, taken: 0, .. } => good(format!("on {nodes}, the lock is free")),
        EventKind::Taken { nodes, taken, held_by: None } => {
            bad(format!("on {taken} of {nodes}, the lock is taken, and NOBODY HOLDS IT"))
        }
        EventKind::Taken { nodes, taken, .. } => {
            bad(format!("on {taken} of {nodes}, the lock IS TAKEN"))
        }
        EventKind::AdmittedByHand { nodes } => odd(format!("{nodes} is made to vote BY HAND")),
        EventKind::Admitting { nodes } => {
            plain(format!("the admission of {nodes} waits until all older leases have expired"))
        }
        EventKind::Admitted { nodes } => {
            good(format!("{nodes} has the others' counters, and votes again"))
        }

        // Clients and their locks.
        EventKind::Paused => odd("PAUSED (SIGSTOP)"),
        EventKind::Resumed => odd("WAKES (SIGCONT)"),
        EventKind::Killed => odd("is KILLED (SIGKILL)"),
        EventKind::SetWithoutExpiry => plain("SETNX: it has the lock. EXPIRE is next"),
        EventKind::Acquired { ttl_ms, beside, .. } => {
            let acquires = match (event.token, ttl_ms) {
                (Some(token), _) => format!("acquires the lock: token {token}"),
                (None, Some(ttl_ms)) => format!("acquires the lock for {}", seconds(*ttl_ms)),
                (None, None) => "acquires the lock, without expiry".to_owned(),
            };
            match beside {
                Some(other) => bad(format!("{acquires}, BESIDE {other}")),
                None => good(acquires),
            }
        }
        EventKind::Unanswered => odd("gets NO ANSWER from the lock service"),
        EventKind::NoMajority => odd("gets NO MAJORITY of the nodes, and gives up"),
        EventKind::Busy => odd("finds the lock held, and waits"),
        EventKind::GaveUp { waited_ms: 0 } => good("finds the lock held, and gives up"),
        EventKind::GaveUp { waited_ms } => {
            odd(format!("waits {}, and gives up", seconds(*waited_ms)))
        }
        EventKind::Reissued { instead_of } => {
            good(format!("has read nothing yet: takes token {token} instead of {instead_of}"))
        }
        EventKind::Lost => good("has LOST its lease: it must start again"),
        EventKind::Compared { .. } => plain("GET: the lock is its own. DEL is next"),
        EventKind::Deleted { keys: 0 } => odd("DEL, which finds nothing"),
        EventKind::Deleted { .. } => plain("DEL"),
        EventKind::Released => plain("releases it"),
        EventKind::LeaseLost => odd("finds its lease over"),
        EventKind::LeaseOver => odd("checks its lease: it is OVER"),

        // Clients and their work.
        EventKind::Read(content) => {
            plain(format!("reads {}", value_or_nothing(content.value.as_deref())))
        }
        EventKind::ClaimRejected(_) => odd(format!("claims with token {token}: rejected")),
        EventKind::LeaseChecked { remaining_ms } => {
            plain(format!("its lease is valid for {}", seconds(*remaining_ms)))
        }
        EventKind::Written { content, overwrites_unseen } => {
            let writes = format!("writes {}", value_or_nothing(content.value.as_deref()));
            if *overwrites_unseen > 0 {
                bad(format!("{writes}: OVERWRITES a value that it has not read"))
            } else {
                plain(writes)
            }
        }
        EventKind::Rejected(rejection) if event.actor == Actor::Storage => {
            let rejects = match rejection.reason {
                Reason::StaleToken => {
                    format!("REJECTS {token}: it has seen {}", rejection.highest_token)
                }
                Reason::HolderConflict => format!("REJECTS {token}: it is another client's"),
            };
            match stored.before {
                Some(_) => good(format!("{rejects}. Still {}", value_or_nothing(stored.before))),
                None => good(rejects),
            }
        }
        EventKind::Rejected(_) => odd(format!("writes with token {token}: rejected")),
        EventKind::Unavailable => odd(format!("asks with token {token}: UNAVAILABLE (503)")),
        EventKind::Worked => plain("has done its work"),
        EventKind::StockRead { left } => plain(format!("reads: {left} left")),
        EventKind::Bought { left } => plain(format!("takes an item, and writes: {left} left")),
        EventKind::NotBought => good(format!("takes an item with token {token}: REJECTED")),
        EventKind::Aborted => good("takes an item: ABORTED, because others did"),

        // Crowds.
        EventKind::Served { buyers, bought, .. } => {
            plain(format!("{buyers} more come at once; {bought} of them buy an item"))
        }
        EventKind::HandedOver { handovers } => {
            plain(format!("{handovers} have held the lock, one after the other"))
        }

        // The storage.
        EventKind::Answered(_) => plain("answers"),
        EventKind::AcceptedClaim(_) if stored.checks == Some(Checks::Tokens) => {
            good(format!("now rejects tokens below {token}"))
        }
        EventKind::AcceptedClaim(_) => plain(format!("sees token {token}")),
        EventKind::AcceptedWrite(_) => {
            let style = if event.token.is_some() { GOOD } else { PLAIN };
            (format!("{}{}", accepts(event.token), change(stored)), style)
        }
        EventKind::AcceptedStaleWrite(_) => {
            bad(format!("{}{}: NEWER DATA IS LOST", accepts(event.token), change(stored)))
        }
        EventKind::AcceptedAnothersToken(_) => {
            bad(format!("{}{}: ANOTHER CLIENT HAS IT TOO", accepts(event.token), change(stored)))
        }
    }
}

fn plain(words: impl Into<String>) -> (String, Style) {
    (words.into(), PLAIN)
}

fn good(words: impl Into<String>) -> (String, Style) {
    (words.into(), GOOD)
}

fn bad(words: impl Into<String>) -> (String, Style) {
    (words.into(), BAD)
}

fn odd(words: impl Into<String>) -> (String, Style) {
    (words.into(), ODD)
}

fn accepts(token: Option<Token>) -> String {
    token.map_or_else(|| "accepts it".to_owned(), |token| format!("accepts {token}"))
}

/// How the value changes, if it does: `: 'a' → 'b'`.
fn change(stored: &Stored<'_>) -> String {
    match stored.after {
        Some(_) if stored.after != stored.before => {
            format!(": {} → {}", value_or_nothing(stored.before), value_or_nothing(stored.after))
        }
        _ => String::new(),
    }
}

fn value_or_nothing(value: Option<&str>) -> String {
    value.map_or_else(|| "nothing".to_owned(), quoted)
}

fn verb(nodes: &str, one: &'static str, several: &'static str) -> &'static str {
    if nodes.contains(' ') { several } else { one }
}

fn seconds(millis: u64) -> String {
    format!("{}.{} s", millis / 1000, millis % 1000 / 100)
}
