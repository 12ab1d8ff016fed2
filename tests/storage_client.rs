//! The storage client against a real server: what it sends, and how it reads the answers.

use fence::{Rejection, RejectionReason};
use lock_client::storage::{Answer, Storage, StorageError};
use testbed::StorageServer;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::yield_now,
};

use crate::programs::storage_server;
use crate::{
    fences::new_fence,
    lock_service::with_causes,
    names::{name, token},
};

#[tokio::test]
async fn every_request_reaches_the_resource_and_a_rejection_is_an_answer() {
    let server = StorageServer::start(&storage_server(), &[]).await.unwrap();
    let storage = Storage::new(server.url()).unwrap();
    let (old, new) = (new_fence(33), new_fence(34));
    let stale =
        Rejection { reason: RejectionReason::Stale, token: token(33), highest_token: token(34) };
    for resource in ["a", "a/b", "a b", "{x}", "100%", "%2e", "...", "a?b#c", "\u{1f422}"] {
        let resource = name(resource);
        let read = storage.fenced_read(&resource, &old).await.unwrap();
        assert_eq!(read, Answer::Accepted(None));
        let written = storage.write(&resource, &old, "text/plain", resource.to_string()).await;
        assert_eq!(written.unwrap(), Answer::Accepted(1));
        assert_eq!(storage.claim(&resource, &new).await.unwrap(), Answer::Accepted(1));

        let value = storage.read(&resource).await.unwrap().unwrap();
        assert_eq!(value.bytes, resource.to_string());
        assert_eq!((value.content_type.as_str(), value.version), ("text/plain", 1));
        assert_eq!(value.token, Some(token(33)));

        let late = storage.write(&resource, &old, "text/plain", "late").await.unwrap();
        assert_eq!(late, Answer::Rejected(stale));
        assert_eq!(storage.claim(&resource, &old).await.unwrap(), Answer::Rejected(stale));
        assert_eq!(storage.delete(&resource, &old).await.unwrap(), Answer::Rejected(stale));
        let read = storage.fenced_read(&resource, &old).await.unwrap();
        assert_eq!(read, Answer::Rejected(stale));

        let conflict =
            Rejection { reason: RejectionReason::HolderConflict, token: token(34), ..stale };
        let rival = storage.delete(&resource, &new_fence(34)).await.unwrap();
        assert_eq!(rival, Answer::Rejected(conflict));
        assert_eq!(storage.delete(&resource, &new).await.unwrap(), Answer::Accepted(()));
        assert_eq!(storage.read(&resource).await.unwrap(), None);
    }
}

#[tokio::test]
async fn server_that_is_no_storage_server_accepts_nothing() {
    let server = StorageServer::start(&storage_server(), &[]).await.unwrap();
    let elsewhere = Storage::new(&format!("{}/elsewhere", server.url())).unwrap();
    let (resource, fence) = (name("r"), new_fence(34));
    let read = elsewhere.fenced_read(&resource, &fence).await;
    assert!(matches!(read, Err(StorageError::Rejected(_))), "{read:?}");
    let deleted = elsewhere.delete(&resource, &fence).await;
    assert!(matches!(deleted, Err(StorageError::Rejected(_))), "{deleted:?}");
}

/// Reads a request without a body.
async fn request_head(connection: &mut TcpStream) -> String {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        connection.read_buf(&mut request).await.unwrap();
    }
    String::from_utf8(request).unwrap()
}

/// A proxy may ask for a user and a password.
#[tokio::test]
async fn password_in_the_url_is_sent_and_not_printed() {
    let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = proxy.local_addr().unwrap();
    let storage = Storage::new(&format!("http://u:p%40ss@{address}/below")).unwrap();
    assert!(!format!("{storage:?}").contains("p%40ss"));
    let answer = async {
        let (mut connection, _) = proxy.accept().await.unwrap();
        request_head(&mut connection).await
    };
    let resource = name("r");
    let (_, request) = tokio::join!(storage.read(&resource), answer);
    assert!(request.starts_with("GET /below/v1/resources/r HTTP/1.1\r\n"), "{request}");
    // printf u:p@ss | base64
    assert!(request.contains("authorization: Basic dTpwQHNz\r\n"), "{request}");
}

/// Answers each request with these bytes, and then closes the connection.
async fn answer_each(listener: TcpListener, answer: String) {
    loop {
        let (mut connection, _) = listener.accept().await.unwrap();
        let mut request = [0; 1 << 16];
        let _ = connection.read(&mut request).await.unwrap();
        connection.write_all(answer.as_bytes()).await.unwrap();
    }
}

/// Sends a write to a server that answers so.
async fn write_answered_by(status: &str, body: &str) -> StorageError {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let storage = Storage::new(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n");
    let (resource, fence) = (name("r"), new_fence(33));
    tokio::select! {
        () = answer_each(listener, format!("{head}\r\n{body}")) => unreachable!(),
        written = storage.write(&resource, &fence, "text/plain", "value") => written.unwrap_err(),
    }
}

/// It may have forwarded the write before.
#[tokio::test]
async fn rejection_by_a_proxy_is_an_unknown_outcome() {
    let foreign = r#"{"type":"about:blank","title":"Timeout","status":408,"detail":"too slow"}"#;
    for status in ["400 Bad Request", "403 Forbidden", "404 Not Found", "408 Timeout", "499 Gone"] {
        for body in ["", "<html></html>", "{}", foreign] {
            let error = write_answered_by(status, body).await;
            assert!(matches!(error, StorageError::Unknown(_)), "{status} {body}: {error:?}");
        }
    }

    // The controls: the storage itself, which has decided.
    let own = |slug| format!(r#"{{"type":"/problems/{slug}","detail":"no"}}"#);
    for (status, body) in [
        ("403 Forbidden", own("forbidden")),
        ("400 Bad Request", own("malformed-request")),
        // It is also the answer to a head that the storage can't read.
        ("431 Too Large", String::new()),
    ] {
        let error = write_answered_by(status, &body).await;
        assert!(matches!(error, StorageError::Rejected(_)), "{status} {body}: {error:?}");
    }
}

#[tokio::test]
async fn write_that_came_too_slowly_has_not_happened() {
    let slow = r#"{"type":"/problems/slow-body","detail":"too slow","outcome":"none"}"#;
    let error = write_answered_by("408 Request Timeout", slow).await;
    assert!(matches!(error, StorageError::Unavailable(_)), "{error:?}");
}

#[tokio::test]
async fn outcome_that_the_storage_does_not_know_is_unknown() {
    let unknown = r#"{"type":"/problems/another","detail":"who knows","outcome":"unknown"}"#;
    let error = write_answered_by("409 Conflict", unknown).await;
    assert!(matches!(error, StorageError::Unknown(_)), "{error:?}");
}

/// The read has claimed, though its answer can't be used.
#[tokio::test]
async fn fenced_read_whose_answer_lacks_the_version_is_an_unknown_outcome() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let storage = Storage::new(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx";
    let (resource, fence) = (name("r"), new_fence(33));
    let error = tokio::select! {
        () = answer_each(listener, answer.to_owned()) => unreachable!(),
        read = storage.fenced_read(&resource, &fence) => read.unwrap_err(),
    };
    assert!(matches!(error, StorageError::Unknown(_)), "{error:?}");
}

/// It would fill the client's memory.
#[tokio::test]
async fn answer_that_is_longer_than_any_value_is_not_read() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let storage = Storage::new(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
    let endless = async {
        let (mut connection, _) = listener.accept().await.unwrap();
        request_head(&mut connection).await;
        let head = "HTTP/1.1 200 OK\r\nETag: \"7\"\r\nContent-Length: 268435457\r\n\r\n";
        connection.write_all(head.as_bytes()).await.unwrap();
        // The client closes the connection.
        while connection.write_all(b"x").await.is_ok() {
            yield_now().await;
        }
    };
    let (resource, fence) = (name("r"), new_fence(33));
    let (read, ()) = tokio::join!(storage.fenced_read(&resource, &fence), endless);
    let error = read.unwrap_err();
    assert!(matches!(error, StorageError::Unknown(_)), "{error:?}");
    let reason = with_causes(&error);
    assert!(reason.contains("an answer of more than 268435456 bytes"), "{reason}");
}

#[test]
fn host_that_http_does_not_allow_is_no_part_of_a_usable_url() {
    for host in ["{host}", "a\"b", "a`b"] {
        let error = Storage::new(&format!("http://{host}:8034")).unwrap_err().to_string();
        assert!(error.contains("its host"), "{error}");
    }
}

/// The HTTP client would leave it out.
#[test]
fn password_that_is_not_utf8_is_no_part_of_a_usable_url() {
    for url in ["http://u:%ff@localhost", "http://%ff@localhost"] {
        let error = Storage::new(url).unwrap_err().to_string();
        assert!(error.contains("its user or its password is not UTF-8"), "{error}");
    }
}

#[test]
fn password_in_the_url_is_sent_in_clear_to_this_machine_only() {
    for host in ["storage.example", "10.0.0.7", "[2001:db8::7]", "localhost.example"] {
        for user in ["user:secret", "secret", ":secret"] {
            let error = Storage::new(&format!("http://{user}@{host}:8034")).unwrap_err();
            assert!(error.to_string().contains("needs https://"), "{error}");
            assert!(!error.to_string().contains("secret"), "{error}");
            // The controls.
            Storage::new(&format!("https://{user}@{host}:8034")).unwrap();
            Storage::new(&format!("http://{host}:8034")).unwrap();
        }
    }
    for host in ["localhost", "127.0.0.1", "127.1.2.3", "[::1]", "[::ffff:127.0.0.1]"] {
        Storage::new(&format!("http://user:secret@{host}:8034")).unwrap();
    }
}

/// A proxy that compresses values makes their entity tags weak.
#[tokio::test]
async fn weak_entity_tag_has_the_version_too() {
    let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let storage = Storage::new(&format!("http://{}", proxy.local_addr().unwrap())).unwrap();
    let answer = async {
        let (mut connection, _) = proxy.accept().await.unwrap();
        request_head(&mut connection).await;
        let answer = "HTTP/1.1 200 OK\r\nETag: W/\"7\"\r\nContent-Length: 1\r\n\r\nx";
        connection.write_all(answer.as_bytes()).await.unwrap();
    };
    let resource = name("r");
    let (value, ()) = tokio::join!(storage.read(&resource), answer);
    assert_eq!(value.unwrap().unwrap().version, 7);
}

#[tokio::test]
async fn request_beyond_the_limit_has_not_happened() {
    let limit = ["--requests-per-second", "1"];
    let server = StorageServer::start(&storage_server(), &limit).await.unwrap();
    let storage = Storage::new(server.url()).unwrap();
    for number in 1..1_000 {
        match storage.claim(&name("r"), &new_fence(number)).await {
            Ok(Answer::Accepted(_)) => {}
            Err(StorageError::Unavailable(_)) => return,
            other => panic!("{other:?}"),
        }
    }
    panic!("no request was rejected");
}
