//! What scenarios and the sandbox use: a [`scene`](scene::Scene) with servers, and clients that are
//! driven.
//!
//! The locks are a [`redis_lock`], a [`table_lock`], a [`pooled_lock`], an [`etcd_lock`], a
//! [`zookeeper_lock`] and several [`nodes`]. The stores are a [`storage`] server, which may
//! stand on a [`cluster`], and a [`table`]. [`findings`] are read from the events; [`stale_writes`],
//! [`late_release`] and [`issued_twice`] are the ends that several scenarios have.

pub(crate) mod client;
pub(super) mod cluster;
pub(super) mod crowd;
pub(crate) mod etcd_lock;
pub(crate) mod findings;
pub(super) mod issued_twice;
pub(super) mod late_release;
pub(crate) mod nodes;
pub(super) mod pooled_lock;
mod process;
pub(crate) mod redis_lock;
mod reported;
pub(crate) mod scene;
pub(crate) mod stale_writes;
pub(crate) mod storage;
pub(crate) mod table;
pub(super) mod table_lock;
pub(super) mod zookeeper_lock;
