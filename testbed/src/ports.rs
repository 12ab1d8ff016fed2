//! Ports that no process listens at.

use std::net::{Ipv4Addr, TcpListener};

/// Returns different free ports. Another process may still take them.
pub(crate) fn free_ports<const N: usize>() -> anyhow::Result<[u16; N]> {
    let mut ports = [0; N];
    let mut kept = Vec::new();
    for port in &mut ports {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        *port = listener.local_addr()?.port();
        // Closed only when all ports are chosen, so that they differ.
        kept.push(listener);
    }
    Ok(ports)
}
