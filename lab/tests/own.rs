//! `lab serve --locks … --storage …`: your own services on the page, in a real browser.

use std::{fs, process::Command, time::Duration};

use fence::Fence;
use lock_client::{Locks, Ttl, storage::Storage};
use reqwest::{Method, StatusCode};
use serde_json::Value;
use tempfile::TempDir;
use testbed::{Program, Redis, StorageServer};

use super::{
    browser::{Browser, ENTER, ESCAPE},
    serve::Server,
};

const LAB: &str = env!("CARGO_BIN_EXE_lab");
/// A name for a lock that looks like markup.
const HOSTILE: &str = "<img src=x onerror=alert(1)>";

/// Lets no time pass before a tab that nobody sees rests, and tells when it does.
const IMPATIENT: &str = "const wait = window.setTimeout; window.setTimeout = (act, ms) => \
    ms === 60000 ? wait(() => (act(), window.rested = true)) : wait(act, ms);";

/// Hides the tab, or shows it. Without a screen, browsers don't.
fn see(state: &str) -> String {
    format!(
        "Object.defineProperty(document, 'hidden', {{ value: '{state}' === 'hidden', configurable: true }}); \
         document.dispatchEvent(new Event('visibilitychange'));"
    )
}

/// A lock service, and a storage server that lets a reader and a writer in.
struct Services {
    redis: Redis,
    storage: StorageServer,
    folder: TempDir,
    writer: String,
}

impl Services {
    async fn start() -> Self {
        let folder = TempDir::new().unwrap();
        let token = |name: &str, allow: &str| {
            let file = folder.path().join("auth.toml");
            let mut command = Command::new(LAB);
            command.args(["storage-server", "auth", "new", "--name", name, "--prefix", ""]);
            command.args(["--allow", allow, "--auth-file"]).arg(file);
            let output = command.output().unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap().trim().to_owned()
        };
        fs::write(folder.path().join("reader.token"), token("reader", "read")).unwrap();
        let writer = token("writer", "read,write,claim");
        let storage = Self::storage(&folder, "127.0.0.1:0").await;
        Self { redis: Redis::start().await.unwrap(), storage, folder, writer }
    }

    async fn storage(folder: &TempDir, address: &str) -> StorageServer {
        let program = Program::new(LAB).with_subcommand("storage-server");
        let auth_file = folder.path().join("auth.toml");
        let arguments = ["--auth-file", auth_file.to_str().unwrap()];
        StorageServer::start_listening(&program, address, &arguments).await.unwrap()
    }

    /// Starts the page for both.
    fn page(&self, arguments: &[&str]) -> Server {
        let (locks, token_file) = (self.redis.url(), self.folder.path().join("reader.token"));
        let own = ["--locks", &locks, "--storage", self.storage.url(), "--auth-token-file"];
        Server::start_with(&[&own[..], &[token_file.to_str().unwrap()], arguments].concat())
    }

    fn reader_token(&self) -> String {
        fs::read_to_string(self.folder.path().join("reader.token")).unwrap()
    }

    fn locks(&self, label: &str) -> Locks {
        Locks::new(lock_client::redis::Redis::open(&self.redis.url()).unwrap().label(label))
    }

    async fn write(&self, resource: &str, token: fence::Token) {
        let storage = Storage::new(self.storage.url()).unwrap().bearer_token(&self.writer).unwrap();
        let fence = Fence { token, holder: Default::default() };
        // A rejection is an answer.
        let _ = storage.write(&resource.parse().unwrap(), &fence, "text/plain", "x").await.unwrap();
    }
}

#[tokio::test]
async fn page_shows_locks_fences_and_decisions_and_services_that_are_away_come_back() {
    let mut services = Services::start().await;
    let mut server = services.page(&["--allow-break"]);
    let locks = services.locks(HOSTILE);
    let ttl = Ttl::from_secs(600).unwrap();
    let lease = locks.acquire(&"orders/7".parse().unwrap(), ttl).await.unwrap();
    let token = lease.token().unwrap();
    services.write("orders/7", token).await;
    let browser = Browser::start().await;
    browser.open(&server.address()).await;

    // 1. The lock, with its label as text, and the fence of the resource of its name.
    browser.wait_until_text("#own-locks-state", "locks held: 1.").await;
    browser.wait_until_text("#own-locks", HOSTILE).await;
    browser.wait_until_text("#own-locks td:nth-child(7)", &token.to_string()).await;
    assert_eq!(browser.value("document.querySelectorAll('img').length").await, 0);

    // 2. Decisions as they happen.
    browser.wait_until_text("#own-storage-state", "decisions are shown as they happen").await;
    let stale = fence::Token::new(token.as_u64() - 1).unwrap();
    services.write("orders/7", stale).await;
    browser.wait_until_text("#own-decisions", "REJECTED (stale-token)").await;
    browser
        .wait_until_text("#own-rejected", &format!("orders/7, token {stale}: stale-token"))
        .await;

    // 3. The storage is away, and comes back as another run.
    let address = services.storage.address().to_string();
    services.storage.process().kill().unwrap();
    browser.wait_until_text("#own-storage-state", "can't be watched").await;
    services.storage = Services::storage(&services.folder, &address).await;
    browser.wait_until_text("#own-storage-state", "decisions are shown as they happen").await;
    browser.wait_until_text("#own-decisions", "The storage was restarted").await;
    services.write("orders/8", token).await;
    browser.wait_until_text("#own-decisions", "orders/8").await;

    // 4. So is the lock service.
    services.redis.process().kill().unwrap();
    browser.wait_until_text("#own-locks-state", "can't be read").await;
    services.redis.restart().await.unwrap();
    browser.wait_until_text("#own-locks-state", "locks held: ").await;

    // 5. A lock is broken only after a confirmation.
    let deploy = "deploy".parse().unwrap();
    let _lease = services.locks("web-3").acquire(&deploy, ttl).await.unwrap();
    browser.wait_until_text("#own-locks", "web-3").await;
    let button = "button[aria-label='Break the lock deploy']";
    let is_closed = "!document.querySelector('#own-break').open";
    browser.assert_all_is_reached_by_keyboard().await;
    browser.type_into(button, ENTER).await;
    browser.wait_until_text("#own-break", "Break the lock deploy of web-3").await;
    assert_eq!(browser.value("document.activeElement.id").await, "own-keep");
    browser.assert_fits().await;
    browser.assert_accessible().await;
    browser.press(&[ESCAPE]).await;
    browser.wait_until(is_closed).await;
    assert_eq!(browser.value("document.activeElement.textContent").await, "Break");
    browser.press(&[ENTER, ENTER]).await;
    browser.wait_until(is_closed).await;
    assert!(locks.status(&deploy).await.unwrap().held.is_some(), "it was left alone");
    browser.assert_accessible().await;
    browser.resize(1280, 900).await;
    browser.click(button).await;
    browser.click("#own-confirm").await;
    browser.wait_until_text("#own-locks-state", "The lock deploy is broken").await;
    assert_eq!(locks.status(&deploy).await.unwrap().held, None);

    // 6. In Chinese, too.
    browser.click("#language").await;
    browser.wait_until_text("#own-title", "你自己的服务").await;
    browser.wait_until_text("#own-decisions", "接受").await;
    browser.assert_accessible().await;
    browser.click("#language").await;

    // 7. A tab that nobody sees for a while leaves its connection to others, and comes back.
    browser.run(IMPATIENT).await;
    browser.run(&see("hidden")).await;
    let count = "document.querySelectorAll('#own-decisions tr').length";
    let shown = browser.value(count).await;
    browser.wait_until("window.rested").await;
    browser.run(&see("visible")).await;
    browser.wait_until_text("#own-decisions", "the page was away for too long").await;
    browser.wait_until(&format!("{count} === {shown} + 1")).await;
    services.write("orders/9", token).await;
    browser.wait_until_text("#own-decisions", "orders/9").await;

    // 8. The storage's token stays in the lab, and no policy was broken.
    let page = browser.value("document.documentElement.outerHTML").await.to_string();
    assert!(!page.contains(&services.reader_token()));
    let log = browser.log().await.join("\n");
    assert!(!log.contains("Content Security Policy") && !log.contains("TrustedHTML"), "{log}");

    // 9. When the lab was killed, the page says so, and what to do once it was started again.
    server.kill();
    browser.wait_until_text("#own-locks-state", "The lab can't be reached").await;
    browser.wait_until_text("#own-storage-state", "The lab can't be reached").await;
    server.start_again();
    for state in ["#own-locks-state", "#own-storage-state"] {
        browser.wait_until_text(state, "Open the address that `lab serve` printed last").await;
    }
}

#[tokio::test]
async fn own_services_need_the_token_of_the_page_and_are_only_read() {
    let services = Services::start().await;
    let server = services.page(&[]);
    let (locks, name) = (services.locks("web-3"), "orders/7".parse().unwrap());
    let lease = locks.acquire(&name, Ttl::from_secs(600).unwrap()).await.unwrap();
    let token = lease.token().unwrap();
    for path in ["/own", "/own/locks", "/own/fences/orders/7", "/own/decisions"] {
        let without = server.request(Method::GET, path).send().await.unwrap();
        assert_eq!(without.status(), StatusCode::UNAUTHORIZED, "{path}");
        let wrong = server.request(Method::GET, &format!("{path}?token={}", "0".repeat(32)));
        assert_eq!(wrong.send().await.unwrap().status(), StatusCode::UNAUTHORIZED, "{path}");
        let foreign = server.request(Method::GET, path).bearer_auth(&server.token);
        let foreign = foreign.header("origin", "http://attacker.example").send().await.unwrap();
        assert_eq!(foreign.status(), StatusCode::FORBIDDEN, "{path}");
    }
    let held = server.request(Method::GET, "/own/locks").bearer_auth(&server.token);
    let held: Value =
        serde_json::from_str(&held.send().await.unwrap().text().await.unwrap()).unwrap();
    let lock = &held["locks"][0];
    assert_eq!(
        (lock["name"].as_str(), lock["token"].as_u64()),
        (Some("orders/7"), Some(token.as_u64()))
    );
    assert!(lock["label"].as_str().unwrap().contains("web-3"), "{lock}");
    let holder = lock["holder"].as_str().unwrap();
    assert!(holder.ends_with("...") && holder.len() == 11, "the proof of holding is not shown");

    // The storage's events arrive as they are, and go on after the last one that was seen.
    let decisions = format!("/own/decisions?token={}", server.token);
    let mut watching = server.request(Method::GET, &decisions).send().await.unwrap();
    let begin = text_until(&mut watching, "event: begin").await;
    let id = begin.split("id: ").nth(1).unwrap().lines().next().unwrap().to_owned();
    services.write("orders/7", token).await;
    text_until(&mut watching, r#""decision":"accepted""#).await;
    drop(watching);
    services.write("orders/9", token).await;
    let again = server.request(Method::GET, &decisions).header("last-event-id", id);
    let text = text_until(&mut again.send().await.unwrap(), "orders/9").await;
    assert!(text.contains(r#"{"resumed":true}"#) && text.contains("orders/7"), "{text}");

    // Nothing is broken without the option.
    let breaking = server.request(Method::POST, "/own/breaks").bearer_auth(&server.token);
    assert_eq!(breaking.send().await.unwrap().status(), StatusCode::NOT_FOUND);
    let nothing = Server::start_with(&[]);
    let held = nothing.request(Method::GET, "/own/locks").bearer_auth(&nothing.token);
    assert_eq!(held.send().await.unwrap().status(), StatusCode::NOT_FOUND);
}

/// Reads an answer until it has a text.
async fn text_until(answer: &mut reqwest::Response, awaited: &str) -> String {
    let reading = async {
        let mut text = String::new();
        while !text.contains(awaited) {
            let chunk = answer.chunk().await.unwrap().expect("the stream goes on");
            text += &String::from_utf8_lossy(&chunk);
        }
        text
    };
    tokio::time::timeout(Duration::from_secs(120), reading).await.expect(awaited)
}

#[tokio::test]
async fn services_that_cannot_be_used_are_rejected_at_the_start_without_their_secrets() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("token");
    fs::write(&file, "s3cret").unwrap();
    let file = file.to_str().unwrap();
    for (arguments, reason) in [
        (vec!["--locks", "http://u:s3cret@h"], "is no scheme of a lock service"),
        (vec!["--storage", "nowhere"], "storage URL"),
        (vec!["--storage", "http://192.0.2.1", "--auth-token-file", file], "only encrypted"),
        (vec!["--storage", "http://127.0.0.1:1", "--auth-token-file", "/no/file"], "can't read"),
        (vec!["--allow-break"], "--locks"),
    ] {
        let serve = ["serve", "--no-open", "--listen", "127.0.0.1:0"];
        let output = super::replay::lab(&[&serve[..], &arguments].concat()).await;
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains(reason), "{arguments:?}: {error}");
        assert!(!error.contains("s3cret"), "{error}");
    }
}
