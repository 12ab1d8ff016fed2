//! A private etcd or ZooKeeper, its clients, and single requests of holders.

use std::{net::SocketAddr, time::Duration};

use fence::{Holder, ResourceName, Token};
use lock_client::{
    Moment, Order, Ttl,
    backend::{Attempt, Backend, BackendError, Contention, Ownership},
    etcd, zookeeper,
};
use testbed::{Etcd, ZooKeeper, process::Process, wait::until_async};

use crate::{lock_service::with_causes, names::name};

pub(crate) const SOON: Duration = Duration::from_secs(30);

/// A private service of one member or three.
pub(crate) trait Service: Sized {
    type Client: Backend;
    const SCHEME: &str;

    async fn start() -> Self;
    async fn start_cluster() -> Self;

    /// Makes a client of the service at a URL.
    fn open(url: &str) -> Self::Client;

    /// Makes a client with patience for a busy machine.
    fn client(url: &str) -> Self::Client;

    fn url(&self) -> String;
    fn address(&self, number: usize) -> SocketAddr;
    fn process(&mut self, number: usize) -> &mut Process;
    fn launch_again(&mut self, number: usize) -> anyhow::Result<()>;
    async fn restart(&mut self) -> anyhow::Result<()>;
    async fn leader_among(&self, members: &[usize]) -> anyhow::Result<usize>;

    /// Shows the places in the queue of `r`. One that was made anew differs.
    async fn places(&self) -> anyhow::Result<String>;
}

macro_rules! impl_service {
    ($service:ident, $client:ty, $scheme:literal, $places:ident($($argument:expr)?)) => {
        impl Service for $service {
            type Client = $client;
            const SCHEME: &str = $scheme;

            async fn start() -> Self {
                $service::start().await.unwrap()
            }

            async fn start_cluster() -> Self {
                $service::start_cluster().await.unwrap()
            }

            fn open(url: &str) -> $client {
                <$client>::open(url).unwrap()
            }

            fn client(url: &str) -> $client {
                Self::open(url).answer_within(Duration::from_secs(5))
            }

            fn url(&self) -> String {
                $service::url(self)
            }

            fn address(&self, number: usize) -> SocketAddr {
                $service::address(self, number)
            }

            fn process(&mut self, number: usize) -> &mut Process {
                $service::process(self, number)
            }

            fn launch_again(&mut self, number: usize) -> anyhow::Result<()> {
                $service::launch_again(self, number)
            }

            async fn restart(&mut self) -> anyhow::Result<()> {
                $service::restart(self).await
            }

            async fn leader_among(&self, members: &[usize]) -> anyhow::Result<usize> {
                $service::leader_among(self, members).await
            }

            async fn places(&self) -> anyhow::Result<String> {
                self.$places($($argument)?).await
            }
        }
    };
}

/// The keys with the revisions that created them.
const QUEUE: [&str; 4] = ["get", "--prefix", "fenced/r/queue/", "--write-out=json"];

impl_service!(Etcd, etcd::Etcd, "etcd", etcdctl(&QUEUE));
// They are listed by their sessions.
impl_service!(ZooKeeper, zookeeper::ZooKeeper, "zookeeper", ephemeral_nodes());

/// The URL of all members, beginning with this one, which the client asks first.
pub(crate) fn url_from<S: Service>(service: &S, first: usize) -> String {
    let addresses: Vec<_> =
        (0..3).map(|number| service.address((first + number) % 3).to_string()).collect();
    format!("{}://{}", S::SCHEME, addresses.join(","))
}

/// Returns the number of a member that is not the leader.
pub(crate) async fn follower(service: &impl Service) -> usize {
    (service.leader_among(&[0, 1, 2]).await.unwrap() + 1) % 3
}

pub(crate) fn secs(seconds: u64) -> Ttl {
    Ttl::from_secs(seconds).unwrap()
}

/// A lock that was granted.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) token: Token,
    pub(crate) ownership: Ownership,
    pub(crate) asked: Moment,
}

/// Tries once to acquire `r` for a minute.
pub(crate) async fn attempt(
    backend: &impl Backend,
    holder: &Holder,
    order: Order,
) -> Result<Attempt, BackendError> {
    backend.try_acquire(&name("r"), holder, secs(60), order).await
}

/// Acquires a lock that is free, in no order.
pub(crate) async fn acquired(backend: &impl Backend, name: &ResourceName, ttl: Ttl) -> Held {
    held(backend.try_acquire(name, &Holder::random(), ttl, Order::Unordered).await)
}

/// Returns what was granted.
pub(crate) fn held(attempt: Result<Attempt, BackendError>) -> Held {
    match attempt {
        Ok(Attempt::Granted { token, ownership, asked }) => Held { token, ownership, asked },
        Ok(busy) => panic!("the lock is not free: {busy:?}"),
        Err(error) => panic!("{}", with_causes(&error)),
    }
}

/// Returns why nothing was granted.
pub(crate) fn busy(attempt: Result<Attempt, BackendError>) -> Contention {
    match attempt {
        Ok(Attempt::Busy(contention)) => contention,
        Ok(granted) => panic!("the lock is free: {granted:?}"),
        Err(error) => panic!("{}", with_causes(&error)),
    }
}

/// Releases `r`.
pub(crate) async fn release(backend: &impl Backend, held: &Held) -> bool {
    backend.release(&name("r"), &held.ownership.holder, Some(held.token)).await.unwrap()
}

/// Waits until `r` is free.
pub(crate) async fn until_free(backend: &impl Backend) {
    let status = async || backend.status(&name("r")).await;
    let is_free = async || Ok(status().await.is_ok_and(|status| status.held.is_none()));
    until_async(SOON, is_free).await.unwrap();
}
