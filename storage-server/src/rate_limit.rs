//! How often something may happen: the requests of each client, for example.

use std::{
    collections::HashMap,
    hash::Hash,
    net::IpAddr,
    num::NonZeroU32,
    sync::Mutex,
    time::{Duration, Instant},
};

/// The time whose requests may come at once.
const BURST: Duration = Duration::from_secs(1);

/// A limit on the events of each source, as the generic cell rate algorithm (ITU-T I.371). An event is a
/// request of a client, for example. A source with a limit of N may have N events at once, and N a second
/// on average: so up to 2 N - 1 within one second.
#[derive(Debug)]
pub(crate) struct RateLimit<S> {
    /// The time that one event takes up.
    interval: Duration,
    sources: Mutex<Sources<S>>,
}

#[derive(Debug)]
struct Sources<S> {
    /// The moment until which a source's events take up time.
    busy_until: HashMap<S, Instant>,
    /// When to forget the sources whose events take up no time any more.
    forget_at: Instant,
}

/// Whose requests are counted together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Client {
    Identity(String),
    Address(IpAddr),
}

impl Client {
    /// A client without an identity. A network of IPv6 counts as one client, because a client can use all
    /// addresses of its network.
    pub(crate) fn from_address(address: IpAddr) -> Self {
        Self::Address(match address {
            IpAddr::V4(_) => address,
            IpAddr::V6(address) => {
                let network = u128::from(address) >> 64 << 64;
                IpAddr::V6(network.into())
            }
        })
    }
}

impl<S: Eq + Hash> RateLimit<S> {
    pub(crate) fn new(events_per_second: NonZeroU32) -> Self {
        Self {
            interval: BURST / events_per_second.get(),
            sources: Mutex::new(Sources { busy_until: HashMap::new(), forget_at: Instant::now() }),
        }
    }

    /// Counts an event, unless its source has had too many. Returns whether it was counted.
    pub(crate) fn admit(&self, source: S, now: Instant) -> bool {
        let mut sources = self.sources.lock().expect("no panic while it is held");
        if now >= sources.forget_at {
            sources.busy_until.retain(|_, until| *until > now);
            sources.forget_at = now + BURST;
        }
        let until = sources.busy_until.entry(source).or_insert(now);
        let with_this = (*until).max(now) + self.interval;
        let is_admitted = with_this <= now + BURST;
        if is_admitted {
            *until = with_this;
        }
        is_admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orders() -> Client {
        Client::Identity("orders".to_owned())
    }

    #[test]
    fn client_may_send_as_many_as_the_limit_each_second() {
        let begun = Instant::now();
        for limit in [1, 2, 3, 7, 1_000, u32::MAX] {
            let requests = limit.min(1_000);
            let rate_limit = RateLimit::new(NonZeroU32::new(limit).unwrap());
            for second in 0..3 {
                let now = begun + second * BURST;
                assert!((0..requests).all(|_| rate_limit.admit(orders(), now)), "{limit}");
                assert_eq!(rate_limit.admit(orders(), now), limit > 1_000);
            }
        }
    }

    #[test]
    fn clients_do_not_use_up_the_limit_of_others() {
        let now = Instant::now();
        let rate_limit = RateLimit::new(NonZeroU32::MIN);
        let address = |text: &str| Client::from_address(text.parse().unwrap());
        assert!(rate_limit.admit(orders(), now));
        assert!(!rate_limit.admit(orders(), now + BURST / 2));
        assert!(rate_limit.admit(Client::Identity("invoices".to_owned()), now));
        for (first, same, other) in [
            ("192.0.2.1", "192.0.2.1", "192.0.2.2"),
            ("2001:db8::1", "2001:db8::ffff:1", "2001:db8:0:1::1"),
        ] {
            assert!(rate_limit.admit(address(first), now));
            assert!(!rate_limit.admit(address(same), now));
            assert!(rate_limit.admit(address(other), now));
        }
    }

    #[test]
    fn clients_that_are_silent_are_forgotten() {
        let now = Instant::now();
        let rate_limit = RateLimit::new(NonZeroU32::MIN);
        for number in 0..1_000_u32 {
            rate_limit.admit(Client::from_address(IpAddr::V4(number.into())), now);
        }
        rate_limit.admit(orders(), now + 2 * BURST);
        assert_eq!(rate_limit.sources.lock().unwrap().busy_until.len(), 1);
    }
}
