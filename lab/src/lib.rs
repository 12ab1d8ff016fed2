//! Runs locks, clients and storages as real processes, and shows what goes wrong with them.
//!
//! # A map
//! Start with `scenario/token_33_34.rs`: the story of two tokens, step by step.
//!
//! - A [`scenario`] starts private servers, drives [`client`]s, and fills a [`record`]. The
//!   [`timeline`] prints the record, the [`page`] draws it in a browser, and [`replay`] is the command
//!   that does all this. [`serve`] plays scenarios for the page, and sandboxes, which somebody drives by hand.
//! - A [`hammer`] strikes a database with many clients at once.
//! - A [`doctor`] says whether the fence can hold on a store.
//! - A [`power_loss`] shows which acknowledged writes survive it.
//! - A [`bench`](mod@bench) measures.
//! - [`programs`] finds the programs that these run.

pub mod bench;
mod bucket;
pub mod client;
pub mod doctor;
pub mod hammer;
mod http_client;
mod output;
mod output_file;
pub mod page;
pub mod power_loss;
pub mod programs;
pub mod record;
pub mod replay;
mod sandbox;
pub mod scenario;
pub mod serve;
pub mod timeline;
