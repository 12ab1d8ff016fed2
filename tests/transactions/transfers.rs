//! Transfers between accounts, which keep the sum, also if servers are killed.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use fence::Fence;
use serde_json::json;
use sqlx::{Connection, PgConnection};
use tempfile::TempDir;
use testbed::{Postgres, StorageServer, wait::until};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    task::JoinSet,
    time::timeout,
};

use super::{JSON, PATIENCE, get, transact, version, write_under};
use crate::{
    fences::Counter,
    programs::storage_server,
    wire::{self, Answer},
};

const ACCOUNTS: u64 = 6;
const BALANCE: u64 = 1000;

#[derive(Clone, Copy)]
enum Transfer {
    InOneTransaction,
    InTwoWrites,
}

/// Clients that transfer between the accounts, through any of the servers, until they are stopped.
struct Transfers {
    clients: JoinSet<()>,
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
}

impl Transfers {
    async fn start(urls: &[&str], tokens: &Arc<Counter>, transfer: Transfer) -> Self {
        let (stop, done) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let mut clients = JoinSet::new();
        for (client, url) in (0..12).zip(urls.iter().cycle()) {
            let url = (*url).to_owned();
            let (tokens, stop, done) = (tokens.clone(), stop.clone(), done.clone());
            clients.spawn(async move {
                let mut number = client;
                while !stop.load(Ordering::Relaxed) {
                    number += 7;
                    let from = number % ACCOUNTS;
                    let to = (from + 1 + number / ACCOUNTS % (ACCOUNTS - 1)) % ACCOUNTS;
                    let fence = tokens.next();
                    let is_done = transfer_once(&url, from, to, &fence, transfer).await;
                    done.fetch_add(u64::from(is_done == Some(true)), Ordering::Relaxed);
                }
            });
        }
        Self { clients, stop, done }
    }

    async fn until_done(&self, transfers: u64) {
        until(PATIENCE, || Ok(self.done.load(Ordering::Relaxed) >= transfers)).await.unwrap();
    }

    async fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.clients.join_all().await;
    }
}

/// Reads both accounts and transfers 1. `None` if the server is gone.
async fn transfer_once(
    url: &str,
    from: u64,
    to: u64,
    fence: &Fence,
    transfer: Transfer,
) -> Option<bool> {
    let names = [from, to].map(|account| format!("account/{account}"));
    let mut accounts = Vec::new();
    for name in &names {
        let read = ask(url, "GET", &format!("/v1/resources/{name}"), &[], "").await?;
        let balance: u64 = read.text().parse().ok()?;
        accounts.push((version(&read), balance));
    }
    let balances = [accounts[0].1.checked_sub(1)?, accounts[1].1 + 1];
    let balances = balances.map(|balance| balance.to_string());
    match transfer {
        Transfer::InOneTransaction => {
            let conditions: Vec<_> = names
                .iter()
                .zip(&accounts)
                .map(|(name, (version, _))| json!({"resource": name, "version": version}))
                .collect();
            let writes: Vec<_> = names
                .iter()
                .zip(&balances)
                .map(|(name, balance)| write_under(fence, name, balance))
                .collect();
            let transaction = json!({"conditions": conditions, "writes": writes}).to_string();
            let answer = ask(url, "POST", "/v1/transactions", &[JSON], &transaction).await?;
            Some(answer.status == 200)
        }
        Transfer::InTwoWrites => {
            for ((name, (version, _)), balance) in names.iter().zip(&accounts).zip(&balances) {
                let (token, matches) = (fence.token.to_string(), format!("\"{version}\""));
                let headers = [
                    ("Fencing-Token", token.as_str()),
                    ("Fencing-Holder", fence.holder.as_str()),
                    ("If-Match", &matches),
                ];
                let path = format!("/v1/resources/{name}");
                if ask(url, "PUT", &path, &headers, balance).await?.status != 200 {
                    return Some(false);
                }
            }
            Some(true)
        }
    }
}

/// The answer, unless the server is gone.
async fn ask(
    url: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Option<Answer> {
    let address = url.strip_prefix("http://").unwrap();
    let mut connection = tokio::net::TcpStream::connect(address).await.ok()?;
    let headers: String =
        headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    connection.write_all(request.as_bytes()).await.ok()?;
    let mut answer = Vec::new();
    timeout(PATIENCE, connection.read_to_end(&mut answer)).await.expect("no answer").ok()?;
    if answer.is_empty() {
        return None;
    }
    wire::try_answer(&mut answer.as_slice()).await.ok()
}

async fn open_accounts(url: &str, tokens: &Counter) {
    let writes: Vec<_> = (0..ACCOUNTS)
        .map(|account| {
            write_under(&tokens.next(), &format!("account/{account}"), &BALANCE.to_string())
        })
        .collect();
    assert_eq!(transact(url, &json!({"writes": writes})).await.status, 200);
}

async fn sum(url: &str) -> u64 {
    let mut sum = 0;
    for account in 0..ACCOUNTS {
        sum += get(url, &format!("account/{account}")).await.text().parse::<u64>().unwrap();
    }
    sum
}

/// Kills a server twice in the middle of transfers, and returns the sum of all accounts then.
async fn sum_after_kills(database_url: &str, transfer: Transfer) -> u64 {
    let start =
        async || StorageServer::start_on(&storage_server(), database_url, &[]).await.unwrap();
    let tokens = Arc::new(Counter::default());
    let mut server = start().await;
    open_accounts(server.url(), &tokens).await;
    for _ in 0..2 {
        let transfers = Transfers::start(&[server.url()], &tokens, transfer).await;
        transfers.until_done(50).await;
        server.process().kill().unwrap();
        transfers.stop().await;
        server = start().await;
    }
    sum(server.url()).await
}

#[tokio::test]
async fn transfers_of_a_killed_server_are_whole_on_sqlite() {
    let folder = TempDir::with_prefix("fenced-").unwrap();
    let url = format!("sqlite:{}", folder.path().join("fenced.db").display());
    let whole = Transfer::InOneTransaction;
    assert_eq!(sum_after_kills(&url, whole).await, ACCOUNTS * BALANCE);
}

#[tokio::test]
async fn transfers_of_a_killed_server_are_whole_on_postgres() {
    let postgres = Postgres::start().await.unwrap();
    let whole = Transfer::InOneTransaction;
    assert_eq!(sum_after_kills(&postgres.url(), whole).await, ACCOUNTS * BALANCE);
}

/// The control.
#[tokio::test]
async fn transfers_in_two_writes_are_not_whole() {
    let folder = TempDir::with_prefix("fenced-").unwrap();
    let url = format!("sqlite:{}", folder.path().join("fenced.db").display());
    let halves = Transfer::InTwoWrites;
    assert_ne!(sum_after_kills(&url, halves).await, ACCOUNTS * BALANCE);
}

/// Two servers transfer in all directions at once. Neither deadlocks.
#[tokio::test]
async fn transfers_through_two_servers_keep_the_sum() {
    let postgres = Postgres::start().await.unwrap();
    let one = StorageServer::start_on(&storage_server(), &postgres.url(), &[]).await.unwrap();
    let other = StorageServer::start_on(&storage_server(), &postgres.url(), &[]).await.unwrap();
    let tokens = Arc::new(Counter::default());
    open_accounts(one.url(), &tokens).await;
    let urls = [one.url(), other.url()];
    let transfers = Transfers::start(&urls, &tokens, Transfer::InOneTransaction).await;
    transfers.until_done(200).await;
    transfers.stop().await;
    assert_eq!(sum(one.url()).await, ACCOUNTS * BALANCE);
    let mut observer = PgConnection::connect(&postgres.url()).await.unwrap();
    let deadlocks = "select deadlocks from pg_stat_database where datname = 'postgres'";
    let deadlocks: i64 = sqlx::query_scalar(deadlocks).fetch_one(&mut observer).await.unwrap();
    assert_eq!(deadlocks, 0);
}
