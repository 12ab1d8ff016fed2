//! Runs locks, clients and storages as real processes, and has done to them what goes wrong.
//!
//! [`process`] starts, pauses and kills; a [`network`](mod@network) delays; [`servers`] are the private
//! databases and storage servers that a run has to itself. A [`scenario`] drives them, and
//! [`client`]s, which are programs of their own, and fills a [`record`], which the [`timeline`]
//! prints and the [`picture`] draws. A [`hammer`] strikes a database with many clients; a
//! [`bench`](mod@bench) measures.

pub mod bench;
pub mod client;
pub mod hammer;
pub mod network;
pub mod picture;
pub mod process;
pub mod record;
pub mod scenario;
pub mod servers;
pub mod timeline;
