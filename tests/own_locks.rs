//! Locks of others in front of our storage: `docs/bring-your-own-lock.md`. Its commands run as they
//! are printed, but for the ports.

mod etcd;
mod page;
mod postgres;
mod reader;
mod redis;
mod redisson;
mod zookeeper;
