//! Locks that hand out fencing tokens, and a client for the storage that checks them.
//!
//! A lease ends when its time is up, whatever its holder does: a holder that was paused meanwhile
//! still believes in it. So every lease comes with a token that grows with each grant, to be sent
//! with every write: the storage refuses what comes with a token below the highest it has seen.
//!
//! Start with [`Locks`], which acquires, and [`Lease`], which is what you get. [`backend`] says what
//! a lock service has to do; [`backend::redis`] is one, and explains where its tokens come from.
//! [`storage`] talks to the storage server.
//!
//! ```no_run
//! # #![deny(unused_must_use)]
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use lock_client::{Locks, Ttl, backend::Redis, storage::{Answer, Storage}};
//!
//! let locks = Locks::new(Redis::open("redis://127.0.0.1")?);
//! let storage = Storage::new("http://127.0.0.1:8034")?;
//! let invoice = "invoice-7".parse()?;
//!
//! let lease = locks.acquire(&invoice, Ttl::from_secs(10)?).await?;
//! // The fenced read claims the resource: from here on, older tokens are refused.
//! if let Answer::Accepted(before) = storage.fenced_read(&invoice, &lease.fence()?).await? {
//!     let mut lines = before.map_or(Vec::new(), |value| value.bytes.to_vec());
//!     lines.extend_from_slice(b"paid\n");
//!     match storage.write(&invoice, &lease.fence()?, "text/plain", lines).await? {
//!         Answer::Accepted(version) => println!("this is version {version}"),
//!         // Nothing was written. What was read is void; start again from acquire.
//!         Answer::Refused(refusal) => println!("somebody else was let in: {refusal:?}"),
//!     }
//! }
//! lease.release().await?;
//! # Ok(()) }
//! ```

mod acquisition;
pub mod backend;
#[cfg(feature = "cli")]
pub mod cli;
mod clock;
pub mod lease;
mod local_queue;
pub mod locks;
pub mod observe;
mod retry;
#[cfg(feature = "storage")]
pub mod storage;
pub mod terms;
pub mod ttl;

pub use backend::Backend;
pub use lease::{Detached, Lease, Lost, Released, RenewError};
pub use locks::{AcquireError, Locks, WithError};
pub use terms::{Order, Terms};
pub use ttl::{InvalidTtl, Ttl};
