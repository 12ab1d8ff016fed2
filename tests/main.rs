//! End-to-end tests: real servers and real clients, each test with its own.
//!
//! Those of the [`command`], the library of [`locks`], [`redlock`], the [`databases`] with a fence, the
//! storage [`server`], and the lab. The helpers that several of them need are [`faults`],
//! [`lock_service`], [`proxy`], [`wire`] and [`world`].

mod bench;
mod command;
mod databases;
mod faults;
mod languages;
mod lock_service;
mod locks;
mod proxy;
mod redis_servers;
mod redlock;
mod replay;
mod server;
mod wire;
mod world;
