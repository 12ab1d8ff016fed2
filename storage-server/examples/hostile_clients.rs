//! Measures what hostile clients cost the others: the time of their writes, and the server's memory. Fails
//! if a goal is missed.
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
    /// Sends headers without an end, until the server closes the connection.
    HeaderFlood,
    /// Requests a value of 128 MiB whose version it knows already.
    KnownVersion,
    /// Claims a resource that has a value of 16 MiB, with one token after the other.
    LargeClaim,
    /// Reads a value of 1 MiB under the same token again and again.
    FencedReader,
}

const KINDS: [Hostile; 7] = [
    Hostile::Silent,
    Hostile::HalfBody,
    Hostile::SlowReader,
    Hostile::HeaderFlood,
    Hostile::KnownVersion,
    Hostile::LargeClaim,
    Hostile::FencedReader,
];

/// The values that hostile clients ask for, and how large they are.
const VALUES: [(&str, usize); 3] =
    [("read", VALUE_BYTES), ("claimed", 16 << 20), ("known", 128 << 20)];

/// Hostile clients, and the server that they meet.
struct Attack {
    name: &'static str,
    /// How many clients of each kind there are.
    clients: [u32; 7],
    /// How many files the server may have open; `None` if the system decides.
    open_files: Option<u32>,
    /// The highest p99 of the others, as a multiple of the quiet one; `None` if there is no goal.
    highest_of_quiet: Option<f64>,
}

impl Attack {
    const fn new(name: &'static str, clients: [u32; 7]) -> Self {
        Self { name, clients, open_files: None, highest_of_quiet: Some(5.0) }
    }
}

const ATTACKS: [Attack; 10] = [
    Attack::new("nobody: quiet", [0, 0, 0, 0, 0, 0, 0]),
    Attack::new("10 000 silent connections", [10_000, 0, 0, 0, 0, 0, 0]),
    Attack::new("2 000 bodies one byte short of 1 MiB", [0, 2_000, 0, 0, 0, 0, 0]),
    Attack::new("1 000 slow readers of 1 MiB", [0, 0, 1_000, 0, 0, 0, 0]),
    Attack::new("1 000 floods of headers", [0, 0, 0, 1_000, 0, 0, 0]),
    Attack {
        open_files: Some(256),
        ..Attack::new("1 000 silent connections, 256 open files", [1_000, 0, 0, 0, 0, 0, 0])
    },
    Attack::new("8 readers of a known version of 128 MiB", [0, 0, 0, 0, 8, 0, 0]),
    Attack::new("8 claims at once on a value of 16 MiB", [0, 0, 0, 0, 0, 8, 0]),
    Attack::new("8 fenced reads at once of 1 MiB", [0, 0, 0, 0, 0, 0, 8]),
    // Together they compete with the server for the processors of one machine.
    Attack {
        highest_of_quiet: None,
        ..Attack::new("all kinds", [10_000, 2_000, 1_000, 1_000, 8, 8, 8])
    },
];

/// The goal for the server's memory.
const HIGHEST_PEAK_MIB: u64 = 512;

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().collect();
    match &arguments[1..] {
        [] => return compare().await,
        [attack, address, counts @ ..] if attack == "attack" => {
            annoy_together(address, counts).await?
        }
        _ => return Ok(storage_server::run(arguments).await),
    }
    Ok(ExitCode::SUCCESS)
}

async fn compare() -> anyhow::Result<ExitCode> {
    println!(
        "{:40} {:>8} {:>8} {:>8} {:>9} {:>10}",
        "beside", "writes", "p50 ms", "p99 ms", "of quiet", "peak MiB"
    );
    let mut quiet = None;
    let mut missed = false;
    for attack in ATTACKS {
        let name = attack.name;
        let measured = measure(&attack).await.with_context(|| name.to_owned())?;
        let quiet = *quiet.get_or_insert(measured.p99);
        let of_quiet = measured.p99.as_secs_f64() / quiet.as_secs_f64();
        missed |= attack.highest_of_quiet.is_some_and(|highest| of_quiet > highest);
        missed |= measured.peak_mib >= HIGHEST_PEAK_MIB;
        println!(
            "{name:40} {:8} {:8.1} {:8.1} {:9.2} {:10}",
            measured.writes,
            milliseconds(measured.p50),
            milliseconds(measured.p99),
            of_quiet,
            measured.peak_mib,
        );
    }
    if missed {
        eprintln!("a goal was missed");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
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
async fn measure(attack: &Attack) -> anyhow::Result<Measured> {
    let folder = TempDir::with_prefix("fenced-")?;
    let mut command = Command::new("sh");
    let limit = attack.open_files.map_or(String::new(), |files| format!("ulimit -n {files}; "));
    command.args(["-c", &format!("{limit}exec \"$@\""), "sh"]).arg(std::env::current_exe()?);
    command.args(["--listen", "127.0.0.1:0", "--max-value-bytes", "134217728"]);
    command.current_dir(folder.path());
    // The uploads are no part of the attack: a server that is started later has not their memory.
    let (server, address) = start(&command, &folder).await?;
    let mut connection = TcpStream::connect(&address).await?;
    for (resource, bytes) in VALUES {
        write(&mut connection, resource, &vec![b'x'; bytes]).await?;
    }
    drop(server);
    let (server, address) = start(&command, &folder).await?;

    // They have the lowest priority, because on machines of their own they would not take the
    // server's processors.
    let mut command = Command::new("nice");
    command.args(["-n", "19"]).arg(std::env::current_exe()?).args(["attack", &address]);
    command.args(attack.clients.map(|count| count.to_string()));
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

/// Starts a server, and returns its address.
async fn start(command: &Command, folder: &TempDir) -> anyhow::Result<(Process, String)> {
    let mut server = Process::spawn("storage-server", command, folder.path())?;
    let line = server.line(Duration::from_secs(20)).await?;
    let address = line.strip_prefix("listening on http://").context(line.clone())?.to_owned();
    Ok((server, address))
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
    connection.write_all(&[write_head(resource, value.len()).as_bytes(), value].concat()).await?;
    let head = answer(connection).await?;
    if !head.starts_with("HTTP/1.1 20") {
        bail!("a write was answered with {head}");
    }
    Ok(())
}

/// Reads an answer with its body, and returns its head.
async fn answer(connection: &mut TcpStream) -> anyhow::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(connection.read_u8().await?);
    }
    let head = String::from_utf8(head)?;
    if !head.starts_with("HTTP/1.1 304") {
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.context("no length")?.parse()?];
        connection.read_exact(&mut body).await?;
    }
    Ok(head)
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
        Hostile::HeaderFlood => {
            connection.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n").await?;
            let header = format!("X-Flood: {}\r\n", "x".repeat(1 << 10));
            while connection.write_all(header.as_bytes()).await.is_ok() {}
        }
        Hostile::KnownVersion => {
            ask_for_ever(&mut connection, |_| {
                "GET /v1/resources/known HTTP/1.1\r\nIf-None-Match: \"1\"\r\n".to_owned()
            })
            .await?;
        }
        Hostile::LargeClaim => {
            let claim = |token| {
                format!(
                    "PUT /v1/fences/claimed HTTP/1.1\r\nFencing-Token: {token}\r\nContent-Length: 0\r\n"
                )
            };
            ask_for_ever(&mut connection, claim).await?;
        }
        Hostile::FencedReader => {
            ask_for_ever(&mut connection, |_| {
                "GET /v1/resources/read HTTP/1.1\r\nFencing-Token: 1\r\n".to_owned()
            })
            .await?;
        }
    }
    connection.read_to_end(&mut Vec::new()).await?;
    Ok(())
}

/// Sends one request after the other, each with the next number, and reads the answers.
async fn ask_for_ever(
    connection: &mut TcpStream,
    head: impl Fn(u64) -> String,
) -> anyhow::Result<()> {
    for number in 2.. {
        connection.write_all((head(number) + "Host: localhost\r\n\r\n").as_bytes()).await?;
        answer(connection).await?;
    }
    Ok(())
}
