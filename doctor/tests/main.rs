//! Probes of real servers and files.

mod mariadb;
mod object_storage;
mod postgres;
mod readme;
mod sqlite;
