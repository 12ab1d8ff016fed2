//! Transactions on several resources, where locks, servers and databases meet: what they compare stays
//! as it is until they are durable, and they take effect as a whole or not at all.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use fence::Fence;
use rustix::process::Signal;
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};
use tempfile::TempDir;
use testbed::{
    Postgres, Proxy, Redis, StorageServer,
    wait::{until, until_async},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::Barrier,
    task::{JoinHandle, JoinSet},
    time::{sleep, timeout},
};

use crate::{
    fences::Counter,
    lock_service::{locks, tried, unrenewed},
    names::{name, token},
    programs::storage_server,
    server_rivals::{observer, open_transaction, until_the_server_waits_for_a_lock},
    wire::{self, Answer},
    world::World,
};

const PATIENCE: Duration = Duration::from_secs(30);
const JSON: (&str, &str) = ("Content-Type", "application/json");

async fn transact(url: &str, transaction: &Value) -> Answer {
    wire::request(url, "POST", "/v1/transactions", &[JSON], transaction.to_string()).await
}

fn transacting(url: &str, transaction: Value) -> JoinHandle<Answer> {
    let url = url.to_owned();
    tokio::spawn(async move { transact(&url, &transaction).await })
}

fn write(resource: &str, token: u64, text: &str) -> Value {
    json!({"resource": resource, "token": token, "value": {"text": text}})
}

fn write_under(fence: &Fence, resource: &str, text: &str) -> Value {
    let (token, holder) = (fence.token.as_u64(), fence.holder.as_str());
    json!({"resource": resource, "token": token, "holder": holder, "value": {"text": text}})
}

async fn put(url: &str, resource: &str, token: u64, text: &str) -> Answer {
    let (path, token) = (format!("/v1/resources/{resource}"), token.to_string());
    wire::request(url, "PUT", &path, &[("Fencing-Token", &token)], text).await
}

async fn get(url: &str, resource: &str) -> Answer {
    wire::request(url, "GET", &format!("/v1/resources/{resource}"), &[], "").await
}

fn version(answer: &Answer) -> u64 {
    answer.header("etag").unwrap().trim_matches('"').parse().unwrap()
}

/// A rival changes what a transaction compares, and commits while the transaction is being decided.
async fn compared_row_is_locked(rival: &'static str, compared: Value) {
    let world = World::on_postgres(&[]).await;
    let (url, postgres) = (world.server.url(), world.postgres.as_ref().unwrap());
    put(url, "a", 1, "one").await;
    put(url, "b", 1, "one").await;
    let mut observer = observer(postgres).await;
    let mut rival = open_transaction(postgres, rival).await;
    let transaction = json!({"conditions": [compared], "writes": [write("a", 2, "two")]});
    let waiting = transacting(url, transaction);
    until_the_server_waits_for_a_lock(&mut observer).await;
    assert!(!waiting.is_finished());

    // The control: without the condition, it waits for nobody.
    let other = transact(url, &json!({"writes": [write("other", 1, "x")]})).await;
    assert_eq!(other.status, 200);
    sqlx::query("commit").execute(&mut rival).await.unwrap();
    let answer = waiting.await.unwrap();
    assert_eq!(answer.problem(), "412 condition-not-met");
    assert_eq!(get(url, "a").await.text(), "one", "nothing has happened");
    assert_eq!(get(url, "a").await.header("fencing-token"), Some("1"));
}

#[tokio::test]
async fn compared_value_stays_as_it_is_until_the_commit() {
    let rival = "update storage.resource set version = 2 where resource = 'b'";
    compared_row_is_locked(rival, json!({"resource": "b", "version": 1})).await;
}

#[tokio::test]
async fn compared_absence_lasts_until_the_commit() {
    let rival = "insert into storage.resource
            (resource, token, holder, version, content_type, bytes, value_token, value_holder)
        values ('new', 1, '', 1, 'text/plain', 'x', 1, '')";
    compared_row_is_locked(rival, json!({"resource": "new", "version": null})).await;
}

#[tokio::test]
async fn others_continue_while_a_transaction_is_blocked() {
    let world = World::on_postgres(&[]).await;
    let (url, postgres) = (world.server.url(), world.postgres.as_ref().unwrap());
    for resource in ["a", "b"] {
        put(url, resource, 1, "one").await;
    }
    let lock = "select from storage.resource where resource = 'b' for update";
    let mut observer = observer(postgres).await;
    let rival = open_transaction(postgres, lock).await;
    let both = json!({"writes": [write("a", 2, "two"), write("b", 2, "two")]});
    let blocked = transacting(url, both);
    until_the_server_waits_for_a_lock(&mut observer).await;
    for number in 0..20 {
        assert_eq!(put(url, "a", 1, "between").await.status, 200, "it has no lock meanwhile");
        let [one, other] = [format!("c/{number}"), format!("d/{number}")];
        let free = json!({"writes": [write(&one, 1, "x"), write(&other, 1, "x")]});
        assert_eq!(transact(url, &free).await.status, 200);
    }
    assert!(!blocked.is_finished());
    rival.close().await.unwrap();
    assert_eq!(blocked.await.unwrap().status, 200);
    assert_eq!(get(url, "a").await.text(), "two");
    assert_eq!(get(url, "b").await.text(), "two");
}

#[tokio::test]
async fn transaction_that_stays_blocked_is_answered_503_with_outcome_none() {
    let world = World::on_postgres(&[]).await;
    let (url, postgres) = (world.server.url(), world.postgres.as_ref().unwrap());
    put(url, "b", 1, "one").await;
    let lock = "select from storage.resource where resource = 'b' for update";
    let rival = open_transaction(postgres, lock).await;
    let both = json!({"writes": [write("a", 2, "two"), write("b", 2, "two")]});
    let answer = transact(url, &both).await;
    assert_eq!(answer.problem(), "503 unavailable");
    assert_eq!(answer.json()["outcome"], "none");
    assert_eq!(answer.header("retry-after"), Some("1"));
    rival.close().await.unwrap();
    assert_eq!(get(url, "a").await.status, 404);
    assert_eq!(get(url, "b").await.text(), "one");
    assert_eq!(transact(url, &both).await.status, 200);
}

/// Two doctors are on call. Each goes, through a server of its own, if the other one stays.
/// Returns in how many rounds both have gone.
async fn rounds_in_which_both_have_gone(rounds: u64, compares: bool) -> u64 {
    let postgres = Postgres::start().await.unwrap();
    let one = StorageServer::start_on(&storage_server(), &postgres.url(), &[]).await.unwrap();
    let other = StorageServer::start_on(&storage_server(), &postgres.url(), &[]).await.unwrap();
    let mut both_have_gone = 0;
    for round in 0..rounds {
        let names = [format!("on-call/{round}/a"), format!("on-call/{round}/b")];
        for name in &names {
            assert_eq!(put(one.url(), name, 1, "on call").await.status, 201);
        }
        let all_have_read = Arc::new(Barrier::new(2));
        let mut doctors = JoinSet::new();
        for (server, doctor) in [&one, &other].into_iter().zip(0..) {
            let (url, all_have_read) = (server.url().to_owned(), all_have_read.clone());
            let [own, others] = [names[doctor].clone(), names[1 - doctor].clone()];
            doctors.spawn(async move {
                let read = get(&url, &others).await;
                assert_eq!(read.text(), "on call");
                let compared = json!({"resource": others, "version": version(&read)});
                let conditions = if compares { vec![compared] } else { Vec::new() };
                all_have_read.wait().await;
                let go = json!({"conditions": conditions, "writes": [write(&own, 2, "gone")]});
                transact(&url, &go).await
            });
        }
        let mut gone = 0;
        for answer in doctors.join_all().await {
            match answer.status {
                200 => gone += 1,
                _ => assert_eq!(answer.problem(), "412 condition-not-met"),
            }
        }
        assert!(gone > 0, "the first one may go");
        both_have_gone += u64::from(gone == 2);
    }
    both_have_gone
}

#[tokio::test]
async fn two_servers_never_both_accept_what_each_compares_with_the_other() {
    assert_eq!(rounds_in_which_both_have_gone(50, true).await, 0);
}

/// The control.
#[tokio::test]
async fn without_the_comparison_both_are_accepted() {
    assert_eq!(rounds_in_which_both_have_gone(5, false).await, 5);
}

/// A server is held up between its comparison and its commit.
#[tokio::test]
async fn paused_transaction_keeps_no_other_server_waiting_and_does_not_take_effect_later() {
    let postgres = Postgres::start().await.unwrap();
    let proxy = Proxy::start(postgres.socket_folder().join(".s.PGSQL.5432")).await.unwrap();
    let url = format!("postgres://postgres@{}/postgres", proxy.address());
    let paused = StorageServer::start_on(&storage_server(), &url, &[]).await.unwrap();
    let other = StorageServer::start_on(&storage_server(), &postgres.url(), &[]).await.unwrap();
    put(paused.url(), "a", 1, "one").await;
    put(paused.url(), "b", 1, "one").await;
    let held = proxy.hold("commit");
    let transaction = json!({
        "conditions": [{"resource": "b", "version": 1}], "writes": [write("a", 2, "two")],
    });
    let waiting = transacting(paused.url(), transaction);
    let held = timeout(PATIENCE, held.caught()).await.expect("it commits").unwrap();
    assert_eq!(put(other.url(), "b", 1, "two").await.status, 200, "PostgreSQL has ended it");
    held.deliver();
    let answer = waiting.await.unwrap();
    assert!(["503 unavailable", "412 condition-not-met"].contains(&answer.problem().as_str()));
    assert_eq!(get(other.url(), "a").await.text(), "one");
}

/// The database commits, and its answer is lost.
#[tokio::test]
async fn lost_answer_to_the_commit_is_an_unknown_outcome_and_no_refusal() {
    let postgres = Postgres::start().await.unwrap();
    let proxy = Proxy::start(postgres.socket_folder().join(".s.PGSQL.5432")).await.unwrap();
    let url = format!("postgres://postgres@{}/postgres", proxy.address());
    let server = StorageServer::start_on(&storage_server(), &url, &[]).await.unwrap();
    let transaction = json!({
        "conditions": [{"resource": "c", "version": null}],
        "writes": [write("a", 1, "x"), write("b", 1, "x")],
    });
    // The connection is open: its first message has the text "commit", too.
    put(server.url(), "r", 1, "x").await;
    // What is lost before the commit has no effect.
    proxy.lose_reply_to("storage.resource");
    let none = transact(server.url(), &transaction).await;
    assert!(proxy.has_struck());
    assert_eq!(none.problem(), "503 unavailable");
    assert_eq!(none.json()["outcome"], "none");
    assert_eq!(get(server.url(), "a").await.status, 404);

    put(server.url(), "r", 1, "x").await;
    proxy.lose_reply_to("commit");
    let unknown = transact(server.url(), &transaction).await;
    assert!(proxy.has_struck());
    assert_eq!(unknown.problem(), "503 unavailable");
    assert_eq!(unknown.json()["outcome"], "unknown");
    for resource in ["a", "b"] {
        assert_eq!(get(server.url(), resource).await.text(), "x", "it had happened");
    }
}

/// The body is only the way in which they came.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn values_of_transactions_that_wait_are_in_memory_once() {
    const VALUES: usize = 32;
    const VALUE_BYTES: usize = 1 << 20;
    // On a busy machine, the first ones are answered before the last one waits.
    let mut resident = None;
    for _ in 0..10 {
        resident = resident_bytes_of_waiting(VALUES, VALUE_BYTES).await;
        if resident.is_some() {
            break;
        }
    }
    let resident = resident.expect("the server queues all values before it gives up the first");
    let values = VALUES * VALUE_BYTES;
    // The allocator keeps what a few bodies have needed.
    assert!((values..values * 3 / 2).contains(&resident), "{resident} bytes for {values}");
}

/// Returns by how much the resident memory of a server grows while transactions with one value each wait
/// for a lock, or nothing if one is answered before all of them wait.
#[cfg(target_os = "linux")]
async fn resident_bytes_of_waiting(values: usize, value_bytes: usize) -> Option<usize> {
    let mut world = World::on_postgres(&["--max-value-bytes", "1500000"]).await;
    let pid = world.server.process().pid().as_raw_nonzero();
    let (url, postgres) = (world.server.url(), world.postgres.as_ref().unwrap());
    put(url, "b", 1, "one").await;
    let resident_bytes = || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let (_, resident) = status.split_once("VmRSS:").unwrap();
        let kib: usize = resident.split_whitespace().next().unwrap().parse().unwrap();
        kib << 10
    };
    let before = resident_bytes();
    let lock = "select from storage.resource where resource = 'b' for update";
    let rival = open_transaction(postgres, lock).await;
    let mut waiting: Vec<JoinHandle<Answer>> = Vec::new();
    for number in 1..=values {
        let value = write(&format!("a/{number}"), 1, &"x".repeat(value_bytes));
        waiting.push(transacting(url, json!({"writes": [value, write("b", 2, "two")]})));
        // One after the other: a body that was read makes room for the next one.
        let queued = format!("storage_server_queued_operations {}", 2 * number);
        let one_is_answered = || waiting.iter().any(JoinHandle::is_finished);
        let is_queued = async || {
            let metrics = wire::request(url, "GET", "/metrics", &[], "").await.text();
            Ok(one_is_answered() || metrics.lines().any(|line| line == queued))
        };
        until_async(PATIENCE, is_queued).await.unwrap();
        if one_is_answered() {
            break;
        }
    }
    let resident = resident_bytes() - before;
    let all_wait = !waiting.iter().any(JoinHandle::is_finished);
    rival.close().await.unwrap();
    for transaction in waiting {
        let status = transaction.await.unwrap().status;
        assert!(status == 200 || !all_wait && status == 503, "{status}");
    }
    all_wait.then_some(resident)
}

/// Clients disconnect while their transactions wait for a lock.
#[tokio::test]
async fn abandoned_transactions_are_not_made() {
    let world = World::on_postgres(&[]).await;
    let (url, postgres) = (world.server.url(), world.postgres.as_ref().unwrap());
    put(url, "b", 1, "one").await;
    let lock = "select from storage.resource where resource = 'b' for update";
    let mut observer = observer(postgres).await;
    let rival = open_transaction(postgres, lock).await;
    let waiting = transacting(url, json!({"writes": [write("a", 2, "x"), write("b", 2, "x")]}));
    until_the_server_waits_for_a_lock(&mut observer).await;
    for number in 0..5 {
        let mut connection = wire::connect(url).await;
        let abandoned = write(&format!("abandoned/{number}"), 1, "x");
        let body = json!({"writes": [abandoned, write("b", 2, "y")]}).to_string();
        let post = format!(
            "POST /v1/transactions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        connection.write_all(post.as_bytes()).await.unwrap();
        // The server must have queued it: nothing shows that.
        sleep(Duration::from_millis(20)).await;
        connection.shutdown().await.unwrap();
        // It closes the connection without an answer when it has noticed that its client is gone.
        let mut answer = Vec::new();
        connection.read_to_end(&mut answer).await.unwrap();
        assert!(answer.is_empty());
    }
    rival.close().await.unwrap();
    assert_eq!(waiting.await.unwrap().status, 200, "the control: its client waits");
    let mut made = 0;
    for number in 0..5 {
        let read = get(url, &format!("abandoned/{number}")).await;
        made += u32::from(read.status == 200);
    }
    assert!(made <= 1, "only the last may have been in a batch already: {made}");
}

#[tokio::test]
async fn sigterm_answers_a_transaction_that_is_queued() {
    let mut world = World::on_postgres(&[]).await;
    put(world.server.url(), "b", 1, "one").await;
    let lock = "select from storage.resource where resource = 'b' for update";
    let mut observer = observer(world.postgres.as_ref().unwrap()).await;
    let rival = open_transaction(world.postgres.as_ref().unwrap(), lock).await;
    let both = json!({"writes": [write("a", 2, "two"), write("b", 2, "two")]});
    let queued = transacting(world.server.url(), both);
    until_the_server_waits_for_a_lock(&mut observer).await;
    let address = world.server.address();
    world.server.process().signal(Signal::TERM).unwrap();
    until(PATIENCE, || Ok(std::net::TcpStream::connect(address).is_err())).await.unwrap();
    rival.close().await.unwrap();
    assert_eq!(queued.await.unwrap().status, 200);
    let status = world.server.process().exit(PATIENCE).await.unwrap();
    assert_eq!(status.code(), Some(0));
}

/// Client 1 has paused with token 33 for one account, and still has the lock of the other one.
#[tokio::test]
async fn late_transfer_under_two_locks_moves_nothing() {
    let redis = Redis::start().await.unwrap();
    redis.set("fenced:{account/a}:token", "32").await.unwrap();
    let server = StorageServer::start(&storage_server(), &[]).await.unwrap();
    let locks = locks(&redis.url());
    let accounts = [name("account/a"), name("account/b")];
    let transfer = |[a, b]: &[Fence; 2], balances: [&str; 2]| {
        json!({"writes": [
            write_under(a, "account/a", balances[0]), write_under(b, "account/b", balances[1]),
        ]})
    };
    let fences = |leases: &[lock_client::Lease]| -> [Fence; 2] {
        [leases[0].fence().unwrap(), leases[1].fence().unwrap()]
    };
    let leases = locks.acquire_all(&accounts, unrenewed(60_000)).await.unwrap();
    let paused = fences(&leases);
    assert_eq!(paused[0].token, token(33));
    assert_eq!(transact(server.url(), &transfer(&paused, ["100", "0"])).await.status, 200);

    // The lock of one account expires, and client 2 acquires it.
    assert_eq!(redis.command::<u64>(&["DEL", "fenced:{account/a}:lock"]).await.unwrap(), 1);
    let next = locks.acquire(&accounts[0], tried(60_000)).await.unwrap();
    assert_eq!(next.token(), Ok(token(34)));
    let paid = json!({"writes": [write_under(&next.fence().unwrap(), "account/a", "10")]});
    assert_eq!(transact(server.url(), &paid).await.status, 200);

    let late = transact(server.url(), &transfer(&paused, ["70", "30"])).await;
    assert_eq!(late.problem(), "409 transaction-refused");
    let decisions = late.json()["writes"].as_array().unwrap().clone();
    assert_eq!([&decisions[0]["decision"], &decisions[1]["decision"]], ["stale-token", "accepted"]);
    assert_eq!(get(server.url(), "account/a").await.text(), "10");
    assert_eq!(get(server.url(), "account/b").await.text(), "0", "no half of it has happened");

    // The control: two writes are not one transaction.
    for (fence, resource, balance) in
        [(&paused[0], "account/a", "70"), (&paused[1], "account/b", "30")]
    {
        let path = format!("/v1/resources/{resource}");
        let (token, holder) = (fence.token.to_string(), fence.holder.as_str());
        let headers = [("Fencing-Token", token.as_str()), ("Fencing-Holder", holder)];
        wire::request(server.url(), "PUT", &path, &headers, balance).await;
    }
    assert_eq!(get(server.url(), "account/a").await.text(), "10");
    assert_eq!(get(server.url(), "account/b").await.text(), "30", "money that nobody has paid");
}

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
