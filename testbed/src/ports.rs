//! Ports that no process listens at.

use std::{
    io::ErrorKind,
    net::{Ipv4Addr, TcpListener},
    ops::Range,
};

use anyhow::bail;

/// Linux gives connections ports from 32768 on, and macOS from 49152 on. So none takes one of these
/// between the choice and the start of a server, or while the server is down.
const PORTS: Range<u16> = 10_000..32_768;
const ATTEMPTS: usize = 1000;

/// Returns different free ports. Another server may still take them.
pub(crate) fn free_ports<const N: usize>() -> anyhow::Result<[u16; N]> {
    let mut ports = [0; N];
    let mut kept = Vec::new();
    for port in &mut ports {
        let listener = listen()?;
        *port = listener.local_addr()?.port();
        // Closed only when all ports are chosen, so that they differ.
        kept.push(listener);
    }
    Ok(ports)
}

fn listen() -> anyhow::Result<TcpListener> {
    for _ in 0..ATTEMPTS {
        match TcpListener::bind((Ipv4Addr::LOCALHOST, rand::random_range(PORTS))) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => {}
            bound => return Ok(bound?),
        }
    }
    bail!("{ATTEMPTS} ports of {PORTS:?} were in use")
}
