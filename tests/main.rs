//! End-to-end tests: real servers and real clients, each test with its own.

mod bad_input;
mod conformance;
mod contract;
mod crashes;
mod database_hammer;
mod enforcement;
mod hammer;
mod languages;
mod lock_command;
mod locks;
mod proxy;
mod replay;
mod rivals;
mod start_and_stop;
mod storage_client;
mod wire;
mod world;
