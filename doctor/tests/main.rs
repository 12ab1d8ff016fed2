//! Probes of real servers and files.

mod postgres;
mod sqlite;
