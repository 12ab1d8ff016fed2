//! Runs locks, clients and storages as real processes, and has done to them what goes wrong.
//!
//! A [`scenario`] drives private servers and [`client`]s, which are programs of their own. It fills a
//! [`record`], which the [`timeline`] prints and the [`picture`] draws. A [`hammer`] strikes a database
//! with many clients; a [`bench`](mod@bench) measures.

pub mod bench;
pub mod client;
pub mod hammer;
mod output;
pub mod picture;
pub mod programs;
pub mod record;
pub mod scenario;
pub mod timeline;
