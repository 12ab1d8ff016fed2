//! Measures what hostile clients cost the others: the time of their writes, and the server's memory.
//!
//! ```sh
//! cargo run --package storage-server --example hostile_clients --release
//! ```

use std::{
    process::{Command, ExitCode},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use mimalloc::MiMalloc;
use tempfile::TempDir;
use testbed::{open_files, process::Process};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
    time::{sleep, timeout},
};

/// As in the server itself.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// The clients whose writes are measured, and how long each pauses after a write.
const WRITERS: usize = 16;
const PAUSE: Duration = Duration::from_millis(10);
/// How long to measure, after the hostile clients have had some time to begin.
const MEASURE: Duration = Duration::from_secs(10);
const WARM_UP: Duration = Duration::from_secs(3);
/// When a hostile client begins anew after the server has closed its connection.
const RETURN: Duration = Duration::from_secs(1);

const VALUE_BYTES: usize = 1 << 20;

#[derive(Clone, Copy)]
enum Hostile {
    /// Connects, and says nothing.
    Silent,
    /// Sends a value of 1 MiB but for one byte.
    HalfBody,
    /// Requests a value of 1 MiB many times, and reads 1 KiB of it each second.
    SlowReader,
}

const KINDS: [Hostile; 3] = [Hostile::Silent, Hostile::HalfBody, Hostile::SlowReader];

/// How many clients of each kind there are.
const ATTACKS: [(&str, [u32; 3]); 5] = [
    ("nobody: quiet", [0, 0, 0]),
    ("10 000 silent connections", [10_000, 0, 0]),
    ("2 000 bodies one byte short of 1 MiB", [0, 2_000, 0]),
    ("1 000 slow readers of 1 MiB", [0, 0, 1_000]),
    ("all of these", [10_000, 2_000, 1_000]),
];

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().collect();
    match &arguments[1..] {
        [] => compare().await?,
        [attack, address, counts @ ..] if attack == "attack" => {
            annoy_together(address, counts).await?
        }
        _ => return Ok(storage_server::run(arguments).await),
    }
    Ok(ExitCode::SUCCESS)
}

async fn compare() -> anyhow::Result<()> {
    println!(
        "{:38} {:>8} {:>8} {:>8} {:>9} {:>10}",
        "beside", "writes", "p50 ms", "p99 ms", "of quiet", "peak MiB"
    );
    let mut quiet = None;
    for (name, hostile) in ATTACKS {
        let measured = measure(hostile).await.with_context(|| name.to_owned())?;
        let quiet = *quiet.get_or_insert(measured.p99);
        println!(
            "{name:38} {:8} {:8.1} {:8.1} {:9.2} {:10}",
            measured.writes,
            milliseconds(measured.p50),
            milliseconds(measured.p99),
            measured.p99.as_secs_f64() / quiet.as_secs_f64(),
            measured.peak_mib,
        );
    }
    Ok(())
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

struct Measured {
    writes: usize,
    p50: Duration,
    p99: Duration,
    peak_mib: u64,
}

/// Measures the writes of others beside these hostile clients. Every write must succeed.
async fn measure(hostile: [u32; 3]) -> anyhow::Result<Measured> {
    let folder = TempDir::with_prefix("fenced-")?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--listen", "127.0.0.1:0"]).current_dir(folder.path());
    let mut server = Process::spawn("storage-server", &command, folder.path())?;
    let line = server.line(Duration::from_secs(20)).await?;
    let address = line.strip_prefix("listening on http://").context(line.clone())?.to_owned();
    let mut connection = TcpStream::connect(&address).await?;
    write(&mut connection, "read", &vec![b'x'; VALUE_BYTES]).await?;

    // They have the lowest priority, because on machines of their own they would not take the
    // server's processors.
    let mut command = Command::new("nice");
    command.args(["-n", "19"]).arg(std::env::current_exe()?).args(["attack", &address]);
    command.args(hostile.map(|count| count.to_string()));
    let _attack = Process::spawn("attack", &command, folder.path())?;
    sleep(WARM_UP).await;
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let address = address.clone();
        writers.spawn(write_for(MEASURE, address, format!("written-{writer}")));
    }
    let mut times = Vec::new();
    while let Some(writer) = writers.join_next().await {
        times.extend(writer??);
    }
    times.sort_unstable();
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid().as_raw_pid()))?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak_kib = peak.and_then(|peak| peak.split_whitespace().next()).context("no VmHWM")?;
    let peak_mib = peak_kib.parse::<u64>()? >> 10;
    Ok(Measured {
        writes: times.len(),
        p50: times[times.len() / 2],
        p99: times[times.len() * 99 / 100],
        peak_mib,
    })
}

/// Writes again and again on one connection, and returns how long each write took.
async fn write_for(
    duration: Duration,
    address: String,
    resource: String,
) -> anyhow::Result<Vec<Duration>> {
    let mut connection = TcpStream::connect(&address).await?;
    connection.set_nodelay(true)?;
    let begun = Instant::now();
    let mut times = Vec::new();
    while begun.elapsed() < duration {
        let sent = Instant::now();
        let written = write(&mut connection, &resource, b"hello");
        timeout(Duration::from_secs(10), written).await.context("no answer for 10 s")??;
        times.push(sent.elapsed());
        sleep(PAUSE).await;
    }
    Ok(times)
}

async fn write(connection: &mut TcpStream, resource: &str, value: &[u8]) -> anyhow::Result<()> {
    let length = value.len();
    connection.write_all(&[write_head(resource, length).as_bytes(), value].concat()).await?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(connection.read_u8().await?);
    }
    let head = String::from_utf8(head)?;
    if !head.starts_with("HTTP/1.1 20") {
        bail!("a write was answered with {head}");
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.context("no length")?.parse()?];
    connection.read_exact(&mut body).await?;
    Ok(())
}

fn write_head(resource: &str, length: usize) -> String {
    format!(
        "PUT /v1/resources/{resource} HTTP/1.1\r\nHost: localhost\r\nFencing-Token: 1\r\n\
         Content-Length: {length}\r\n\r\n"
    )
}

/// Runs this many clients of each kind, for ever.
async fn annoy_together(address: &str, counts: &[String]) -> anyhow::Result<()> {
    open_files::raise_limit();
    let mut clients = JoinSet::new();
    for (kind, count) in KINDS.into_iter().zip(counts) {
        for _ in 0..count.parse::<u32>()? {
            let address = address.to_owned();
            clients.spawn(async move {
                loop {
                    // The server may close the connection at any moment.
                    let _ = annoy(kind, &address).await;
                    sleep(RETURN).await;
                }
            });
        }
    }
    while clients.join_next().await.is_some() {}
    std::future::pending().await
}

/// Keeps the server waiting until it closes the connection.
async fn annoy(kind: Hostile, address: &str) -> anyhow::Result<()> {
    static VALUE: [u8; VALUE_BYTES] = [b'x'; VALUE_BYTES];
    let mut connection = TcpStream::connect(address).await?;
    match kind {
        Hostile::Silent => {}
        Hostile::HalfBody => {
            connection.write_all(write_head("half", VALUE_BYTES).as_bytes()).await?;
            connection.write_all(&VALUE[1..]).await?;
        }
        Hostile::SlowReader => {
            let request = b"GET /v1/resources/read HTTP/1.1\r\nHost: localhost\r\n\r\n";
            connection.write_all(&request.repeat(100)).await?;
            while connection.read_exact(&mut [0; 1 << 10]).await.is_ok() {
                sleep(Duration::from_secs(1)).await;
            }
            return Ok(());
        }
    }
    connection.read_to_end(&mut Vec::new()).await?;
    Ok(())
}
