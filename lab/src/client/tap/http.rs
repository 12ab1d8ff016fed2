//! HTTP/1.1 (RFC 9112), which the storage server and the gateway of etcd speak.

use super::ledger::{Ledger, SECRET, text};
use crate::record::Exchange;

/// Headers that a client of its own sends anyway.
const OWN_HEADERS: [&str; 2] = ["host", "content-length"];
/// Headers whose values prove who asks.
const SECRET_HEADERS: [&str; 3] = ["authorization", "proxy-authorization", "cookie"];

/// A conversation with a server of HTTP.
#[derive(Debug)]
pub(super) struct Conversation {
    /// Its URL.
    server: String,
    pub(super) ledger: Ledger,
    /// What is the beginning of a request, or of an answer.
    sent: Vec<u8>,
    received: Vec<u8>,
}

/// A request or an answer.
#[derive(Debug)]
struct Message {
    /// The request's or the status line.
    first: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    length: usize,
}

impl Conversation {
    pub(super) fn new(server: String, ledger: Ledger) -> Self {
        Self { server, ledger, sent: Vec::new(), received: Vec::new() }
    }

    pub(super) fn note_sent(&mut self, bytes: &[u8]) {
        self.sent.extend(bytes);
        while let Some(request) = Message::parse(&self.sent) {
            self.sent.drain(..request.length);
            let mut words = request.first.split(' ');
            let (method, path) = (words.next(), words.next());
            let headers = request.headers.iter();
            let headers = headers.filter(|(name, _)| !OWN_HEADERS.contains(&&*name.to_lowercase()));
            let exchange = Exchange::Http {
                url: format!("{}{}", self.server, path.unwrap_or_default()),
                method: method.unwrap_or_default().to_owned(),
                headers: headers.map(header).collect(),
                body: text(&request.body),
                answer: None,
            };
            self.ledger.ask(exchange, None);
        }
    }

    pub(super) fn note_received(&mut self, bytes: &[u8]) {
        self.received.extend(bytes);
        while let Some(answer) = Message::parse(&self.received) {
            self.received.drain(..answer.length);
            let status = answer.first.split_once(' ').map_or("", |(_, status)| status);
            // 100 Continue is followed by the answer.
            if status.starts_with('1') {
                continue;
            }
            let mut lines = vec![status.to_owned()];
            lines.extend(answer.headers.iter().map(header));
            let body = text(&answer.body);
            if !body.is_empty() {
                lines.extend([String::new(), body]);
            }
            self.ledger.answer(&lines.join("\n"));
        }
    }
}

impl Message {
    /// Reads the first message. Returns `None` if its end is missing.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let end = bytes.windows(4).position(|end| end == b"\r\n\r\n")?;
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let mut lines = head.split("\r\n");
        let first = lines.next().unwrap_or_default().to_owned();
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
            .collect();
        let value = |wanted: &str| {
            let header = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted));
            header.map(|(_, value)| &**value)
        };
        let rest = &bytes[end + 4..];
        let (body, length) = if value("transfer-encoding") == Some("chunked") {
            chunks(rest)?
        } else {
            let length = value("content-length").and_then(|value| value.parse().ok()).unwrap_or(0);
            (rest.get(..length)?.to_vec(), length)
        };
        Some(Self { first, headers, body, length: end + 4 + length })
    }
}

/// A body that comes in chunks, and how many bytes they take.
fn chunks(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (mut body, mut at) = (Vec::new(), 0);
    loop {
        let rest = bytes.get(at..)?;
        let end = rest.windows(2).position(|end| end == b"\r\n")?;
        let line = std::str::from_utf8(&rest[..end]).ok()?;
        let length = usize::from_str_radix(line.split(';').next()?.trim(), 16).ok()?;
        body.extend(rest.get(end + 2..end + 2 + length)?);
        at += end + 2 + length + 2;
        if length == 0 {
            return (at <= bytes.len()).then_some((body, at));
        }
    }
}

fn header((name, value): &(String, String)) -> String {
    let is_secret = SECRET_HEADERS.contains(&&*name.to_lowercase());
    format!("{name}: {}", if is_secret { SECRET } else { value })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn noted(sent: &str, received: &str) -> Vec<Exchange> {
        let mut one =
            Conversation::new("http://127.0.0.1:1".to_owned(), Ledger::new(Arc::default()));
        sent.bytes().for_each(|byte| one.note_sent(&[byte]));
        received.bytes().for_each(|byte| one.note_received(&[byte]));
        one.ledger.take().into_iter().map(|noted| noted.exchange).collect()
    }

    #[test]
    fn request_and_answer_are_read_byte_by_byte_without_the_secrets() {
        let sent = "PUT /v1/resources/a HTTP/1.1\r\nFencing-Token: 33\r\nAuthorization: Bearer secret\r\n\
                    Host: b\r\nContent-Length: 5\r\n\r\nhelloGET /c HTTP/1.1\r\n\r\n";
        let received = "HTTP/1.1 100 Continue\r\n\r\n\
                        HTTP/1.1 204 No Content\r\nResource-Version: 1\r\n\r\n\
                        HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
        let exchange =
            |method: &str, path: &str, headers: &[&str], body: &str, answer: &str| Exchange::Http {
                url: format!("http://127.0.0.1:1{path}"),
                method: method.to_owned(),
                headers: headers.iter().map(|header| (*header).to_owned()).collect(),
                body: body.to_owned(),
                answer: Some(answer.to_owned()),
            };
        let headers = ["Fencing-Token: 33", "Authorization: (not recorded)"];
        assert_eq!(
            noted(sent, received),
            [
                exchange(
                    "PUT",
                    "/v1/resources/a",
                    &headers,
                    "hello",
                    "204 No Content\nResource-Version: 1"
                ),
                exchange("GET", "/c", &[], "", "200 OK\nTransfer-Encoding: chunked\n\nabcde"),
            ]
        );
    }

    #[test]
    fn answer_that_is_not_complete_is_none() {
        let received = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell";
        let noted = noted("GET / HTTP/1.1\r\n\r\n", received);
        assert!(matches!(&noted[..], [Exchange::Http { answer: None, .. }]), "{noted:?}");
    }
}
