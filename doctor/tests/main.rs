//! Probes of real servers and files.

mod postgres;
mod readme;
mod sqlite;
