//! A store that has no conditional writes, and says so.

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
};
use tokio_util::task::AbortOnDropHandle;

use crate::doctor::{database_at, verdict};

/// Answers writes on a condition with 501, and everything else as an empty bucket.
async fn answer(client: TcpStream) -> std::io::Result<()> {
    let mut client = BufReader::new(client);
    loop {
        let (mut head, mut line) = (String::new(), String::new());
        while client.read_line(&mut line).await? > 2 {
            head += &line.to_ascii_lowercase();
            line.clear();
        }
        if head.is_empty() {
            return Ok(());
        }
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
        client.read_exact(&mut body).await?;
        let has_condition = head.contains("if-match:") || head.contains("if-none-match:");
        let (status, body) = match has_condition {
            true => ("501 Not Implemented", "<Error><Code>NotImplemented</Code></Error>"),
            false if head.starts_with("post") => ("200 OK", "<DeleteResult></DeleteResult>"),
            false => ("200 OK", "<ListBucketResult></ListBucketResult>"),
        };
        let length = body.len();
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{body}");
        client.write_all(answer.as_bytes()).await?;
    }
}

#[tokio::test]
async fn store_without_conditional_writes_is_rejected_at_the_start() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let _store = AbortOnDropHandle::new(tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(answer(client));
        }
    }));
    let database = database_at(format!("s3://fenced/folder?endpoint=http://{address}"));
    for arguments in [&["--check"][..], &[]] {
        let error = database.run(arguments).await.failed();
        assert!(error.contains("the store has no conditional writes"), "{error}");
        assert!(error.contains("If-None-Match") && error.contains("501"), "{error}");
    }
    assert_eq!(verdict(&database, "create", &[]).await, "unfit-for-fence");
}
