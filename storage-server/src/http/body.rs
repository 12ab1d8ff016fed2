//! Reading the body of a request, from a client that may send it slowly or not at all.

use std::time::Duration;

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Frame;
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{Instant, sleep_until, timeout},
};

use super::{problem::Problem, service::Service};
use crate::{
    committer::job::UnavailableOutcome,
    cut_offs::CutOff,
    memory_budget::{MemoryBudget, SMALL_BYTES, with_memory},
};

/// How long to wait for the next byte of a body.
const STALL_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a body may take, in addition to the time that it has at the lowest rate.
const HEAD_START: Duration = Duration::from_secs(10);
/// Both of them while memory is short: a body that stalls is dropped for others.
const PATIENCE_WHILE_SHORT: Duration = Duration::from_secs(1);
/// How often to look whether memory is short.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// How much is reserved for a small body before any of it has come.
const FIRST_BYTES: usize = 4 << 10;
/// The lowest rate of a body.
const LOWEST_BYTES_PER_SECOND: u32 = 64 << 10;

/// How much is read of the body of a rejected request, and for how long.
const MAX_DROPPED_BYTES: usize = 64 << 20;
const DROP_TIMEOUT: Duration = Duration::from_secs(5);

/// Reads the body of a request. It counts as in flight until the last copy of it is dropped.
pub(super) async fn read(body: Body, service: &Service) -> Result<Bytes, Problem> {
    let (value, memory) = read_with_memory(body, service).await?;
    Ok(with_memory(value, memory))
}

/// Reads the body of a request, and returns it with its memory.
pub(super) async fn read_with_memory(
    mut body: Body,
    service: &Service,
) -> Result<(Vec<u8>, OwnedSemaphorePermit), Problem> {
    let limit = service.config.max_value_bytes;
    // A client that asks first is not asked to send a value that is too large.
    if body.size_hint().lower() > u64::from(limit) {
        return Err(Problem::value_too_large(limit));
    }
    read_value(&mut body, service).await.map_err(|rejected| match rejected {
        Rejection::TooLarge => Problem::value_too_large(limit),
        Rejection::OverBudget => {
            service.cut_offs.count(CutOff::OverBudget);
            Problem::over_budget(UnavailableOutcome::None)
        }
        Rejection::Slow => {
            service.cut_offs.count(CutOff::SlowBody);
            Problem::slow_body()
        }
        Rejection::Broken(error) => {
            Problem::malformed_request(format!("the body can't be read: {error}"))
        }
    })
}

/// Reads the rest of a body, and drops it. It takes no memory from the budget. Returns whether the
/// client has sent, or given up, all of it.
pub(super) async fn discard(mut body: Body, budget: &MemoryBudget) -> bool {
    let mut pace = Pace::new(|| budget.is_crowded());
    let mut dropped = 0;
    let discard = async {
        while dropped < MAX_DROPPED_BYTES {
            match pace.next_frame(&mut body).await {
                Ok(Some(frame)) => dropped += frame.data_ref().map_or(0, Bytes::len),
                Ok(None) | Err(Rejection::Broken(_)) => return true,
                Err(_) => return false,
            }
        }
        false
    };
    timeout(DROP_TIMEOUT, discard).await.unwrap_or(false)
}

enum Rejection {
    TooLarge,
    OverBudget,
    Slow,
    Broken(axum::Error),
}

async fn read_value(
    body: &mut Body,
    service: &Service,
) -> Result<(Vec<u8>, OwnedSemaphorePermit), Rejection> {
    // 1. A large body takes memory for all of it before any of it is buffered: so bodies that are
    //    half read never wait for each other. One that declares no length may be as large as any.
    //    A small one takes memory for the bytes that have come: so a client that declares much and
    //    sends little keeps no others out.
    let limit = service.config.max_value_bytes as usize;
    let declared = body.size_hint().upper().and_then(|bytes| usize::try_from(bytes).ok());
    let expected = declared.unwrap_or(limit);
    let budget = &service.budget;
    let (share, first) = if expected <= SMALL_BYTES {
        (&budget.small_bodies, budget.small_bodies.try_take(0))
    } else {
        (&budget.large_bodies, budget.large_bodies.take(expected).await)
    };
    let mut taken = first.ok_or(Rejection::OverBudget)?;
    // 2. Read it. Its frames would keep the buffers that they were read into. Memory is not reserved for
    //    more than was taken, except for a little.
    let mut value = Vec::with_capacity(expected.min(taken.num_permits().max(FIRST_BYTES)));
    let mut pace = Pace::new(|| budget.is_short(share) || budget.is_short(&budget.small_heads));
    while let Some(frame) = pace.next_frame(body).await? {
        let Ok(data) = frame.into_data() else { continue };
        let bytes = value.len() + data.len();
        if bytes > limit {
            return Err(Rejection::TooLarge);
        }
        if bytes > taken.num_permits() {
            let more = share.try_take(bytes - taken.num_permits()).ok_or(Rejection::OverBudget)?;
            taken.merge(more);
        }
        value.extend_from_slice(&data);
    }
    // 3. Give back what was not needed.
    value.shrink_to_fit();
    drop(taken.split(taken.num_permits().saturating_sub(value.len())));
    Ok((value, taken))
}

/// Whether a body comes fast enough.
struct Pace<F> {
    begun: Instant,
    received: u32,
    /// Whether memory is short at this moment.
    is_short: F,
}

impl<F: Fn() -> bool> Pace<F> {
    fn new(is_short: F) -> Self {
        Self { begun: Instant::now(), received: 0, is_short }
    }

    /// Waits for the next frame; `None` at the end of the body.
    async fn next_frame(&mut self, body: &mut Body) -> Result<Option<Frame<Bytes>>, Rejection> {
        let waiting_since = Instant::now();
        loop {
            let (stall_timeout, head_start) = if (self.is_short)() {
                (PATIENCE_WHILE_SHORT, PATIENCE_WHILE_SHORT)
            } else {
                (STALL_TIMEOUT, HEAD_START)
            };
            let at_lowest_rate = Duration::from_secs(1) * self.received / LOWEST_BYTES_PER_SECOND;
            let deadline =
                (waiting_since + stall_timeout).min(self.begun + head_start + at_lowest_rate);
            let now = Instant::now();
            tokio::select! {
                biased;
                frame = body.frame() => {
                    let frame = frame.transpose().map_err(Rejection::Broken)?;
                    let data = frame.as_ref().and_then(Frame::data_ref);
                    let bytes = data.map_or(0, |data| u32::try_from(data.len()).unwrap_or(u32::MAX));
                    self.received = self.received.saturating_add(bytes);
                    return Ok(frame);
                }
                () = sleep_until(deadline.min(now + LOOK_INTERVAL)) => {
                    if Instant::now() >= deadline {
                        return Err(Rejection::Slow);
                    }
                }
            }
        }
    }
}
