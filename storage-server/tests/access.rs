//! Who may do what: identities, their scopes, and the file that they are in.

mod auth_file;
mod rejected_bodies;
mod scopes;

use std::{fs, path::PathBuf, time::Duration};

use hyper::Request;
use testbed::StorageServer;

use crate::{
    database::Database,
    wire::{self, Answer},
    world::World,
};

/// In this time, a changed file is in force.
pub(crate) const IN_FORCE: Duration = Duration::from_secs(10);

/// Every request that needs an identity.
const REQUESTS: [(&str, &str); 7] = [
    ("GET", "/v1/resources/orders/1"),
    ("HEAD", "/v1/resources/orders/1"),
    ("PUT", "/v1/resources/orders/1"),
    ("DELETE", "/v1/resources/orders/1"),
    ("GET", "/v1/fences/orders/1"),
    ("PUT", "/v1/fences/orders/1"),
    ("GET", "/v1/resources"),
];

/// An auth file, and a database for a server that uses it.
pub(crate) struct Guarded {
    pub(crate) database: Database,
}

impl Guarded {
    pub(crate) fn new() -> Self {
        Self { database: Database::sqlite() }
    }

    pub(crate) fn auth_file(&self) -> PathBuf {
        self.database.file("auth.toml")
    }

    /// Makes an identity, and returns its bearer token.
    pub(crate) async fn identity(&self, name: &str, arguments: &[&str]) -> String {
        let path = self.auth_file();
        let new = ["auth", "new", "--auth-file", path.to_str().unwrap(), "--name", name];
        let printed = self.database.run(&[&new[..], arguments].concat()).await.printed();
        printed.trim_end().to_owned()
    }

    pub(crate) async fn serve(&self) -> StorageServer {
        self.database.serve(&["--auth-file", self.auth_file().to_str().unwrap()]).await
    }
}

pub(crate) async fn ask(
    server: &StorageServer,
    bearer: &str,
    method: &str,
    path: &str,
    token: Option<&str>,
) -> Answer {
    let authorization = format!("Bearer {bearer}");
    let mut headers = vec![("Authorization", authorization.as_str())];
    headers.extend(token.map(|token| ("Fencing-Token", token)));
    wire::request(server.url(), method, path, &headers, "").await
}

#[tokio::test]
async fn clients_without_an_identity_are_rejected() {
    let guarded = Guarded::new();
    let bearer =
        guarded.identity("all", &["--prefix", "", "--allow", "read,write,claim,list"]).await;
    let server = guarded.serve().await;
    let file = fs::read_to_string(guarded.auth_file()).unwrap();
    let hash = file.split('"').find(|text| text.len() == 64).unwrap();
    let headers = [
        vec![],
        vec![("Authorization", String::new())],
        vec![("Authorization", "Bearer ".to_owned())],
        vec![("Authorization", format!("Bearer {hash}"))],
        vec![("Authorization", format!("Bearer {}", &bearer[1..]))],
        vec![("Authorization", format!("Basic {bearer}"))],
        vec![("Authorization", bearer.clone())],
        vec![("Authorization", format!("Bearer {bearer}")), ("Authorization", "x".to_owned())],
    ];
    for (method, path) in REQUESTS {
        for headers in &headers {
            let mut headers: Vec<_> =
                headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
            headers.push(("Fencing-Token", "1"));
            let answer = wire::request(server.url(), method, path, &headers, "").await;
            assert_eq!(answer.status, 401, "{method} {path} {headers:?}");
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
            if method != "HEAD" {
                assert_eq!(answer.problem(), "401 unauthenticated");
            }
        }
        let answer = ask(&server, &bearer, method, path, Some("1")).await;
        assert!(![401, 403].contains(&answer.status), "{method} {path}: {answer:?}");
    }
    for path in ["/livez", "/readyz", "/problems", "/problems/unauthenticated"] {
        let answer = wire::request(server.url(), "GET", path, &[], "").await;
        assert_eq!(answer.status, 200, "{path}");
    }

    // The control: without a file, everything is open, whatever the client sends.
    let world = World::on_sqlite(&[]).await;
    for (method, path) in REQUESTS {
        let answer = ask(&world.server, &bearer, method, path, Some("1")).await;
        assert!(![401, 403].contains(&answer.status), "{method} {path}: {answer:?}");
    }
}

/// The hash of a token that a script took from a variable that is not set.
#[tokio::test]
async fn empty_token_is_no_token() {
    let guarded = Guarded::new();
    guarded.identity("writer", &["--prefix", "", "--allow", "read"]).await;
    let text = fs::read_to_string(guarded.auth_file()).unwrap();
    let begin = text.find("token-sha256 = \"").unwrap() + "token-sha256 = \"".len();
    let of_nothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let text = format!("{}{of_nothing}{}", &text[..begin], &text[begin + 64..]);
    fs::write(guarded.auth_file(), text).unwrap();
    let server = guarded.serve().await;
    let stream = wire::connect(server.url()).await;
    // HTTP/1 removes the space at the end.
    let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let get = Request::get(format!("{}/v1/resources", server.url()));
    let get = get.header("Authorization", "Bearer ").body(()).unwrap();
    let (answer, _) = client.send_request(get, true).unwrap();
    assert_eq!(answer.await.unwrap().status(), 401);
}
