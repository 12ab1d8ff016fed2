//! The storage server.

mod bad_input;
mod contract;
mod crashes;
mod enforcement;
mod hammer;
mod rivals;
mod start_and_stop;
