//! A client in a scenario: a process of its own, driven command by command.

use std::time::Duration;

use anyhow::{bail, ensure};
use fence::Token;

use super::{
    findings::{Ends, lease_over},
    process::ClientProcess,
    reported::{by_old_primary, completed, decision},
};
use crate::{
    client::{
        command::{Command, Terms},
        report::Report,
    },
    record::{Actor, Event, EventKind, Recorder},
};

const STEP_TIMEOUT: Duration = Duration::from_secs(20);

/// A client that does one command after the other. Each event that it reports is recorded, and so
/// is the decision of the storage that the event shows.
pub(crate) struct Client {
    process: ClientProcess,
    recorder: Recorder,
    /// Which events end a hold of the lock, so that the next holder is not beside that client.
    ends: Ends,
    /// Whether an old primary decides on its requests.
    is_beyond_the_split: bool,
}

impl Client {
    pub(super) fn new(process: ClientProcess, recorder: Recorder) -> Self {
        Self { process, recorder, ends: lease_over, is_beyond_the_split: false }
    }

    /// From now on, the primary that decides on its requests is an old one.
    pub(crate) fn stay_with_the_old_primary(&mut self) {
        self.is_beyond_the_split = true;
    }

    /// Lets other events end a hold of the lock.
    pub(crate) fn holding_until(self, ends: Ends) -> Self {
        Self { ends, ..self }
    }

    /// Acquires the lock for this long, without renewal. Returns its token, if it has tokens.
    pub(crate) async fn acquire(&mut self, ttl: Duration) -> anyhow::Result<Option<Token>> {
        self.send(&Command::Acquire(Terms::new(ttl)))?;
        self.finish_acquire().await
    }

    /// Acquires the lock for this long, and must get this token.
    pub(crate) async fn acquire_token(
        &mut self,
        expected: u64,
        ttl: Duration,
    ) -> anyhow::Result<Option<Token>> {
        let token = self.acquire(ttl).await?;
        ensure!(token.map(Token::as_u64) == Some(expected), "not token {expected}: {token:?}");
        Ok(token)
    }

    /// Acquires the lock, reads and checks the lease: the client is about to write.
    pub(crate) async fn acquire_read_and_check(&mut self, ttl: Duration) -> anyhow::Result<()> {
        self.acquire(ttl).await?;
        self.read().await?;
        self.check_lease().await
    }

    /// Waits until the client has acquired the lock.
    pub(crate) async fn finish_acquire(&mut self) -> anyhow::Result<Option<Token>> {
        let event = self.finish_try().await?;
        let acquired = matches!(event.kind, EventKind::Acquired { .. });
        ensure!(acquired, "the client did not acquire the lock: {event:?}");
        Ok(event.token)
    }

    /// Tries to acquire the lock on these terms. Returns whether the client has acquired it.
    pub(crate) async fn try_acquire(&mut self, terms: Terms) -> anyhow::Result<bool> {
        self.send(&Command::Acquire(terms))?;
        Ok(matches!(self.finish_try().await?.kind, EventKind::Acquired { .. }))
    }

    /// Waits until the client has acquired the lock, or has given up.
    pub(crate) async fn finish_try(&mut self) -> anyhow::Result<Event> {
        loop {
            let event = self.next().await?;
            match event.kind {
                EventKind::Busy => {}
                EventKind::Acquired { .. }
                | EventKind::SetWithoutExpiry
                | EventKind::NoMajority
                | EventKind::GaveUp { .. } => return Ok(event),
                _ => bail!("unexpected in an acquire: {event:?}"),
            }
        }
    }

    /// Waits until the client reports that somebody else holds the lock, and that it waits.
    pub(crate) async fn expect_waiting(&mut self) -> anyhow::Result<()> {
        self.expect(|kind| *kind == EventKind::Busy).await
    }

    /// Claims and reads.
    pub(crate) async fn read(&mut self) -> anyhow::Result<()> {
        self.send(&Command::Read)?;
        loop {
            let event = self.next().await?;
            match event.kind {
                EventKind::ClaimRejected(_) | EventKind::Reissued { .. } => {}
                EventKind::Read(_) => return Ok(()),
                _ => bail!("unexpected in a read: {event:?}"),
            }
        }
    }

    /// Checks that its lease is valid.
    pub(crate) async fn check_lease(&mut self) -> anyhow::Result<()> {
        self.send(&Command::CheckLease)?;
        self.expect(|kind| matches!(kind, EventKind::LeaseChecked { .. })).await
    }

    /// Writes, which the storage accepts or rejects.
    pub(crate) async fn write(&mut self, value: &str) -> anyhow::Result<()> {
        self.send(&write(value))?;
        self.finish_write().await
    }

    /// Sells this many of what it has read, which the storage accepts or rejects.
    pub(crate) async fn sell(&mut self, count: u64) -> anyhow::Result<()> {
        self.send(&Command::Sell { count })?;
        self.finish_write().await
    }

    /// Waits until the storage has accepted or rejected the client's write.
    pub(crate) async fn finish_write(&mut self) -> anyhow::Result<()> {
        self.expect(|kind| matches!(kind, EventKind::Written { .. } | EventKind::Rejected(_))).await
    }

    /// Does its work, which takes no time.
    pub(crate) async fn work(&mut self) -> anyhow::Result<()> {
        self.send(&Command::Work { for_ms: 0 })?;
        self.expect(|kind| *kind == EventKind::Worked).await
    }

    /// Releases the lock, or finds that it is not the client's any more.
    pub(crate) async fn release(&mut self) -> anyhow::Result<()> {
        self.send(&Command::Release)?;
        self.finish_release().await
    }

    /// Looks whether it holds the lock (GET), and deletes the lock if so (DEL).
    pub(crate) async fn compare_and_delete(&mut self) -> anyhow::Result<()> {
        self.send(&Command::Compare)?;
        if let EventKind::Compared { .. } = self.next().await?.kind {
            self.send(&Command::Delete)?;
            self.finish_release().await?;
        }
        Ok(())
    }

    /// Waits until the client does not hold the lock any more.
    pub(crate) async fn finish_release(&mut self) -> anyhow::Result<()> {
        loop {
            let event = self.next().await?;
            match event.kind {
                EventKind::Lost => {}
                EventKind::Released | EventKind::LeaseLost | EventKind::Deleted { .. } => {
                    return Ok(());
                }
                _ => bail!("unexpected in a release: {event:?}"),
            }
        }
    }

    /// Stops the client where it is (SIGSTOP).
    pub(crate) async fn pause(&mut self) -> anyhow::Result<()> {
        self.process.child.pause().await?;
        self.record(EventKind::Paused);
        Ok(())
    }

    /// Lets a stopped client go on (SIGCONT).
    pub(crate) fn resume(&mut self) -> anyhow::Result<()> {
        self.record(EventKind::Resumed);
        self.process.child.resume()
    }

    /// Kills the client (SIGKILL).
    pub(crate) fn kill(&mut self) -> anyhow::Result<()> {
        self.process.child.kill()?;
        self.record(EventKind::Killed);
        Ok(())
    }

    /// Sends a command. A stopped client finds it on its stdin when it goes on.
    pub(crate) fn send(&mut self, command: &Command) -> anyhow::Result<()> {
        self.process.send(command)
    }

    /// Waits for the client's next event, which must be of this kind.
    pub(crate) async fn expect(
        &mut self,
        expected: impl Fn(&EventKind) -> bool,
    ) -> anyhow::Result<()> {
        let event = self.next().await?;
        ensure!(expected(&event.kind), "unexpected: {event:?}");
        Ok(())
    }

    /// Waits for the client's next event, and records it with the storage's decision.
    pub(crate) async fn next(&mut self) -> anyhow::Result<Event> {
        let report = self.report().await?;
        Ok(self.record_report(report))
    }

    /// Waits for the client's next report, and doesn't record it.
    pub(crate) async fn report(&mut self) -> anyhow::Result<Report> {
        self.process.report(STEP_TIMEOUT).await
    }

    /// Records a report with the storage's decision.
    pub(crate) fn record_report(&self, report: Report) -> Event {
        let (actor, token) = (self.process.actor, report.token);
        let before = self.recorder.events();
        let decision = decision(&report.kind, actor, token, &before);
        let kind = completed(report.kind, actor, &before, self.ends);
        let event = self.recorder.record_with_wire(actor, token, kind, report.wire);
        if let Some(decision) = decision {
            let (decider, decision) = match self.is_beyond_the_split {
                true => (Actor::Database, by_old_primary(decision)),
                false => (Actor::Storage, decision),
            };
            self.recorder.record(decider, token, decision);
        }
        event
    }

    pub(crate) fn actor(&self) -> Actor {
        self.process.actor
    }

    fn record(&self, kind: EventKind) {
        self.recorder.record(self.process.actor, None, kind);
    }
}

/// The command to write a value.
pub(crate) fn write(value: &str) -> Command {
    Command::Write { value: value.to_owned() }
}
