//! The library of locks, on Redis servers of its own.

mod acquiring;
mod connections;
mod deployments;
mod leases;
mod lost_replies;
mod metrics;
mod missed_wakeups;
mod pitfalls;
mod redis_kinds;
mod reissue;
mod storage_client;
mod under_a_lock;
mod waiting;
