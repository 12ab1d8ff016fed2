//! Runs locks, clients and storages as real processes, and has done to them what goes wrong.
//!
//! [`process`] starts, pauses and kills; a [`network`](mod@network) delays; [`servers`] are the private
//! databases and storage servers that a run has to itself. A [`scenario`] drives them and fills a
//! [`record`], with an [`outcome`] for each of its worlds, which the [`timeline`] prints. What it drives
//! are clients: of a table ([`shelf`]), of a lock alone ([`worker`]), of a storage ([`writer`]), and
//! crowds of them ([`buyers`], [`waiters`]). A [`hammer`] strikes a database with many clients; a
//! [`bench`](mod@bench) measures.

pub mod bench;
pub mod buyers;
pub mod hammer;
pub mod network;
pub mod outcome;
pub mod process;
pub mod record;
pub mod scenario;
pub mod servers;
pub mod shelf;
mod steps;
pub mod timeline;
pub mod waiters;
pub mod worker;
pub mod writer;
