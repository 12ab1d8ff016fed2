//! The lock client and a storage server that faces a network: TLS, and bearer tokens.

use std::{fs, path::PathBuf};

use fence::ResourceName;
use lock_client::storage::{Storage, StorageError};
use tempfile::TempDir;
use testbed::{Authority, Certificate, Redis, StorageServer};

use crate::{
    command::{assert_failed, command, lock_client, output},
    fences::new_fence,
    lock_service::with_causes,
    names::name,
    programs::storage_server,
};

/// A storage server with TLS and one identity, which may do everything with the prefix `orders/`.
struct Guarded {
    server: StorageServer,
    authority: Authority,
    token: String,
    folder: TempDir,
}

impl Guarded {
    async fn start() -> Self {
        let folder = TempDir::with_prefix("fenced-").unwrap();
        let auth_file = folder.path().join("auth.toml");
        let mut new = storage_server().command();
        new.args(["auth", "new", "--name", "orders", "--prefix", "orders/"]);
        new.args(["--allow", "read,write,claim", "--auth-file"]).arg(&auth_file);
        let token = String::from_utf8(output(new).await.stdout).unwrap();

        let authority = Authority::new().unwrap();
        let Certificate { certificate, key } = authority.sign_for_loopback().unwrap();
        let options = ["--auth-file", "--tls-cert", "--tls-key"];
        let files = [&auth_file, &certificate, &key].map(|file| file.to_str().unwrap());
        let arguments: Vec<_> =
            options.into_iter().zip(files).flat_map(|(option, file)| [option, file]).collect();
        let server = StorageServer::start(&storage_server(), &arguments).await.unwrap();
        Self { server, authority, token, folder }
    }

    /// A file with this content.
    fn file(&self, file: &str, content: &str) -> PathBuf {
        let path = self.folder.path().join(file);
        fs::write(&path, content).unwrap();
        path
    }
}

#[tokio::test]
async fn command_uses_a_storage_that_is_encrypted_and_guarded() {
    let redis = Redis::start().await.unwrap();
    let guarded = Guarded::start().await;
    let (url, ca_file) = (guarded.server.url(), guarded.authority.ca_file());
    let token_file = guarded.file("token", &guarded.token);
    let locks = redis.url();
    let storage = ["--storage", url];
    let trust = ["--storage-ca-file", ca_file.to_str().unwrap()];
    let known = ["--storage-token-file", token_file.to_str().unwrap()];
    let run = async |arguments: &[&[&str]]| lock_client(&arguments.concat()).await;

    let put = ["put", "orders/1", "paid", "--locks", &locks];
    let put = run(&[&put, &storage, &trust, &known]).await;
    assert_eq!(put.status.code(), Some(0), "{put:?}");
    let get = ["get", "orders/1"];
    assert_eq!(run(&[&get, &storage, &trust, &known]).await.stdout, b"paid");

    // The token and the authority may be in the environment.
    let mut from_environment = command(&[&get[..], &storage].concat());
    from_environment.env("FENCED_STORAGE_TOKEN", &guarded.token).env("SSL_CERT_FILE", &ca_file);
    assert_eq!(output(from_environment).await.stdout, b"paid");

    // The controls: another authority, another token, another resource.
    let other = Authority::new().unwrap();
    let other_file = other.ca_file();
    let distrusted = ["--storage-ca-file", other_file.to_str().unwrap()];
    let unknown = guarded.file("unknown", "0123456789abcdef");
    let unknown = ["--storage-token-file", unknown.to_str().unwrap()];
    let invoice = ["get", "invoices/1"];
    let plain = url.replace("https://", "http://");
    let plain = ["--storage", plain.as_str()];
    let authority = "UnknownIssuer; name the authority of its certificate with --storage-ca-file";
    let rejections: [(&[&[&str]], &str); 6] = [
        (&[&get, &storage, &known], authority),
        (&[&get, &storage, &distrusted, &known], authority),
        (&[&get, &storage, &trust], "give one with --storage-token-file, or set FENCED_STORAGE"),
        (&[&get, &storage, &trust, &unknown], "no bearer token or client certificate of a known"),
        (&[&invoice, &storage, &trust, &known], "orders may not read \"invoices/1\""),
        (&[&get, &plain, &known], "does this port take https only?"),
    ];
    for (arguments, reason) in rejections {
        assert_failed(&run(arguments).await, 69, reason);
    }

    // Files that can't be used.
    let empty = guarded.file("empty", "\n");
    let empty = empty.to_str().unwrap();
    let wrong: [(&[&str], &str); 4] = [
        (&["--storage-ca-file", empty], "empty has no certificate"),
        (&["--storage-ca-file", "/missing"], "can't read /missing: No such file"),
        (&["--storage-token-file", empty], "a bearer token is a word"),
        (&["--storage-token-file", "/missing"], "can't read /missing: No such file"),
    ];
    for (option, reason) in wrong {
        assert_failed(&run(&[&get, &storage, option]).await, 64, reason);
    }
}

#[tokio::test]
async fn client_reports_what_the_storage_does_not_allow() {
    let guarded = Guarded::start().await;
    let url = guarded.server.url();
    let trusting = Storage::new(url).unwrap().trust(guarded.authority.ca_file()).unwrap();
    let known = trusting.clone().bearer_token(guarded.token.trim()).unwrap();
    assert_eq!(known.read(&name("orders/1")).await.unwrap(), None);

    let rejected = async |storage: &Storage, resource: &ResourceName| {
        let error = storage.claim(resource, &new_fence(34)).await.unwrap_err();
        assert!(matches!(error, StorageError::Rejected(_)), "{error:?}");
        with_causes(&error)
    };
    let distrusting = Storage::new(url).unwrap();
    let reason = rejected(&distrusting, &name("orders/1")).await;
    assert!(reason.contains("the encrypted connection failed"), "{reason}");
    let reason = rejected(&trusting, &name("orders/1")).await;
    assert!(reason.contains("no bearer token"), "{reason}");
    let reason = rejected(&known, &name("invoices/1")).await;
    assert!(reason.contains("orders may not claim"), "{reason}");
    assert!(!format!("{known:?}").contains(guarded.token.trim()));
    for token in ["", "two words", "line\n", "\u{17c}"] {
        assert!(known.clone().bearer_token(token).is_err(), "{token:?}");
    }
}

#[test]
fn bearer_token_is_sent_in_clear_to_this_machine_only() {
    let accepts_token = |url: &str| Storage::new(url).unwrap().bearer_token("secret");
    for host in ["storage.example", "10.0.0.7", "[2001:db8::7]", "localhost.example"] {
        let error = accepts_token(&format!("http://{host}:8034")).unwrap_err().to_string();
        assert!(error.contains("https://"), "{error}");
        // The control.
        accepts_token(&format!("https://{host}:8034")).unwrap();
    }
    for host in ["localhost", "127.0.0.1", "127.1.2.3", "[::1]", "[::ffff:127.0.0.1]"] {
        accepts_token(&format!("http://{host}:8034")).unwrap();
    }
}
