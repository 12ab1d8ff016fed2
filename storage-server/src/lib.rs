//! An HTTP service that persists the highest fencing token per resource and refuses stale writes.
//!
//! The way of a request, in the order of the modules:
//! [`http`] turns it into an [`operation`] and queues it; the [`committer`] takes what is queued as
//! one batch, lets each operation act on its resource's [`row`], where the fencing rule decides, and
//! has the [`store`] make the changes durable; only then is anything answered.

pub mod committer;
pub mod config;
pub mod http;
pub mod operation;
pub mod row;
pub mod serve;
pub mod store;

pub use config::{Config, Enforcement};
pub use serve::serve;
pub use store::Store;
