//! The lock client and a storage server that faces a network: TLS, and bearer tokens.

use std::{fs, path::PathBuf, time::Duration};

use fence::ResourceName;
use lock_client::storage::{Answer, Storage, StorageError};
use tempfile::TempDir;
use testbed::{Authority, Certificate, Proxy, Redis, StorageServer, wait::until_async};

use crate::{
    command::{assert_failed, command, lock_client, output},
    fences::new_fence,
    lock_service::with_causes,
    names::name,
    programs::storage_server,
};

const SOON: Duration = Duration::from_secs(30);

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

/// Starts a server that lets in clients with a certificate, by its names in the auth file if there is
/// one.
async fn serving(server: &Authority, clients: &Authority, more: &[&str]) -> StorageServer {
    let Certificate { certificate, key } = server.sign_for_loopback().unwrap();
    let ca_file = clients.ca_file();
    let files = [&certificate, &key, &ca_file].map(|file| file.to_str().unwrap());
    let options = ["--tls-cert", "--tls-key", "--tls-client-ca"];
    let tls = options.into_iter().zip(files).flat_map(|(option, file)| [option, file]);
    let arguments: Vec<_> = tls.chain(more.iter().copied()).collect();
    StorageServer::start(&storage_server(), &arguments).await.unwrap()
}

#[tokio::test]
async fn command_shows_its_certificate_to_the_storage() {
    let redis = Redis::start().await.unwrap();
    let folder = TempDir::with_prefix("fenced-").unwrap();
    let auth_file = folder.path().join("auth.toml");
    let identity = "[[identity]]\nname = \"orders\"\ncertificate-san = \"orders.example\"\n\n\
                    [[identity.scope]]\nprefixes = [\"orders/\"]\n\
                    allow = [\"read\", \"write\", \"claim\"]\n";
    fs::write(&auth_file, identity).unwrap();
    let [authority, clients, other] = [(); 3].map(|()| Authority::new().unwrap());
    let server = serving(&authority, &clients, &["--auth-file", auth_file.to_str().unwrap()]).await;
    let own = clients.sign("DNS:orders.example").unwrap();
    let unknown = clients.sign("DNS:invoices.example").unwrap();
    let foreign = other.sign("DNS:orders.example").unwrap();
    let ca_file = authority.ca_file();
    let storage = ["--storage", server.url(), "--storage-ca-file", ca_file.to_str().unwrap()];
    let shown = |certificate: &Certificate| {
        [
            ("--storage-cert-file", &certificate.certificate),
            ("--storage-key-file", &certificate.key),
        ]
        .into_iter()
        .flat_map(|(option, file)| [option.to_owned(), file.to_str().unwrap().to_owned()])
        .collect::<Vec<_>>()
    };
    let run = async |arguments: &[&str], certificate: &[String]| {
        let certificate = certificate.iter().map(String::as_str);
        let arguments: Vec<_> =
            arguments.iter().chain(&storage).copied().chain(certificate).collect();
        lock_client(&arguments).await
    };

    let put = ["put", "orders/1", "paid", "--locks", &redis.url()];
    let put = run(&put, &shown(&own)).await;
    assert_eq!(put.status.code(), Some(0), "{put:?}");
    let get = ["get", "orders/1"];
    assert_eq!(run(&get, &shown(&own)).await.stdout, b"paid");
    // The files may be named in the environment.
    let mut from_environment = command(&[&get[..], &storage].concat());
    from_environment.env("FENCED_STORAGE_CERT_FILE", &own.certificate);
    from_environment.env("FENCED_STORAGE_KEY_FILE", &own.key);
    assert_eq!(output(from_environment).await.stdout, b"paid");

    // The controls: no certificate, one of no identity, one of another authority, another resource.
    let unnamed = "no bearer token or client certificate of a known";
    assert_failed(&run(&get, &[]).await, 69, unnamed);
    assert_failed(&run(&get, &[]).await, 69, "or show a certificate with --storage-cert-file");
    assert_failed(&run(&get, &shown(&unknown)).await, 69, unnamed);
    assert_failed(&run(&get, &shown(&foreign)).await, 69, "UnknownCA");
    let invoice = run(&["get", "invoices/1"], &shown(&own)).await;
    assert_failed(&invoice, 69, "orders may not read \"invoices/1\"");

    // Files that can't be used.
    let empty = folder.path().join("empty.pem");
    fs::write(&empty, "\n").unwrap();
    let missing = folder.path().join("missing.pem");
    let with = |certificate: &PathBuf, key: &PathBuf| {
        shown(&Certificate { certificate: certificate.clone(), key: key.clone() })
    };
    let wrong = [
        (with(&own.certificate, &foreign.key), "it is not the key of the certificate"),
        (with(&own.certificate, &missing), "missing.pem: No such file"),
        (with(&missing, &own.key), "missing.pem: No such file"),
        (with(&own.certificate, &empty), "empty.pem: it has no key"),
        (with(&empty, &own.key), "empty.pem has no certificate"),
        (shown(&own)[..2].to_vec(), "not provided:\n  --storage-key-file"),
        (shown(&own)[2..].to_vec(), "not provided:\n  --storage-cert-file"),
    ];
    for (files, reason) in wrong {
        assert_failed(&run(&get, &files).await, 64, reason);
    }
}

/// In TLS 1.3, the server rejects a certificate after the client may have sent its request.
#[tokio::test]
async fn rejected_certificate_proves_that_nothing_was_written() {
    let [authority, other] = [(); 2].map(|()| Authority::new().unwrap());
    let server = serving(&authority, &authority, &[]).await;
    let storage = Storage::new(server.url()).unwrap().trust(authority.ca_file()).unwrap();
    let with = |certificate: Certificate| {
        storage.clone().client_certificate(certificate.certificate, certificate.key).unwrap()
    };
    let foreign = with(other.sign("DNS:a.example").unwrap());
    for (storage, alert) in [(&storage, "CertificateRequired"), (&foreign, "UnknownCA")] {
        // The connection may be reset before the alert is read.
        let is_rejected = async || {
            let claimed = storage.claim(&name("r"), &new_fence(34)).await;
            let error = claimed.expect_err("it has no known certificate");
            Ok(matches!(&error, StorageError::Rejected(_) if with_causes(&error).contains(alert)))
        };
        until_async(SOON, is_rejected).await.expect(alert);
    }
    // The control. The order of the settings does not matter.
    let Certificate { certificate, key } = authority.sign("DNS:a.example").unwrap();
    let known = Storage::new(server.url()).unwrap().client_certificate(certificate, key).unwrap();
    let known = known.trust(authority.ca_file()).unwrap();
    let claimed = known.claim(&name("r"), &new_fence(34)).await.unwrap();
    assert!(matches!(claimed, Answer::Accepted(_)), "{claimed:?}");
    assert!(!format!("{known:?}").contains("PRIVATE"));
}

/// The authority of both certificates is renewed while the client runs.
#[tokio::test]
async fn certificates_that_are_renewed_on_disk_are_read_again() {
    let [before, after] = [(); 2].map(|()| Authority::new().unwrap());
    let folder = TempDir::with_prefix("fenced-").unwrap();
    let [ca_file, certificate, key] =
        ["ca.pem", "c.pem", "c.key"].map(|file| folder.path().join(file));
    let install = |authority: &Authority| {
        let client = authority.sign("DNS:a.example").unwrap();
        fs::copy(authority.ca_file(), &ca_file).unwrap();
        fs::copy(client.certificate, &certificate).unwrap();
        fs::copy(client.key, &key).unwrap();
    };
    install(&before);
    let server = serving(&before, &before, &[]).await;
    let proxy = Proxy::start(server.address()).await.unwrap();
    let storage = Storage::new(&proxy.url("https")).unwrap().trust(&ca_file).unwrap();
    let storage = storage.client_certificate(&certificate, &key).unwrap();
    let claim = async || storage.claim(&name("r"), &new_fence(34)).await;
    let _ = claim().await.unwrap();

    drop(server);
    let server = serving(&after, &after, &[]).await;
    proxy.switch_to(server.address());
    // The control: the old ones are of no use.
    let is_rejected = async || Ok(matches!(claim().await.unwrap_err(), StorageError::Rejected(_)));
    until_async(SOON, is_rejected).await.unwrap();
    install(&after);
    let _ = claim().await.unwrap();
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

/// Otherwise, a client whose URL has the wrong scheme would show no certificate, and check none.
#[tokio::test]
async fn certificates_of_a_connection_that_is_not_encrypted_are_rejected() {
    let authority = Authority::new().unwrap();
    let Certificate { certificate, key } = authority.sign("DNS:a.example").unwrap();
    let storage = |scheme: &str| Storage::new(&format!("{scheme}://127.0.0.1:8034")).unwrap();
    let plain = storage("http");
    for rejected in [
        plain.clone().trust(authority.ca_file()),
        plain.clone().client_certificate(&certificate, &key),
    ] {
        let error = rejected.unwrap_err().to_string();
        assert_eq!(error, "127.0.0.1:8034 is not encrypted: a certificate needs https://");
    }
    // The control.
    let encrypted = storage("https").trust(authority.ca_file()).unwrap();
    encrypted.client_certificate(&certificate, &key).unwrap();

    let ca_file = authority.ca_file();
    let url = ["--storage", "http://127.0.0.1:8034"];
    let trust = ["--storage-ca-file", ca_file.to_str().unwrap()];
    let get = lock_client(&[&["get", "orders/1"][..], &url, &trust].concat()).await;
    assert_failed(&get, 64, "--storage-ca-file: 127.0.0.1:8034 is not encrypted");
}
