//! Probes of real servers and files.

mod object_storage;
mod postgres;
mod readme;
mod sqlite;
