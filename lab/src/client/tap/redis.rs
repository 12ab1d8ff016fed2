//! Redis' protocol (<https://redis.io/docs/latest/develop/reference/protocol-spec>).

use std::collections::VecDeque;

use redis::Script;

use super::ledger::{Ledger, SECRET, text};
use crate::record::{Exchange, Word};

/// A conversation with a Redis.
#[derive(Debug)]
pub(super) struct Conversation {
    server: String,
    pub(super) ledger: Ledger,
    /// What is the beginning of a command, or of an answer.
    sent: Vec<u8>,
    received: Vec<u8>,
    /// For each command without an answer, how many replies follow its first.
    surplus: VecDeque<usize>,
    /// How many of them follow the last answer.
    unread: usize,
}

/// A value of the protocol.
#[derive(Debug)]
enum Value {
    /// A line, by what it begins with.
    Line(u8, String),
    Bulk(Option<Vec<u8>>),
    List(u8, Option<Vec<Value>>),
}

impl Conversation {
    pub(super) fn new(server: String, ledger: Ledger) -> Self {
        let (sent, received, surplus) = (Vec::new(), Vec::new(), VecDeque::new());
        Self { server, ledger, sent, received, surplus, unread: 0 }
    }

    pub(super) fn note_sent(&mut self, bytes: &[u8]) {
        self.sent.extend(bytes);
        while let Some((value, rest)) = Value::parse(&self.sent) {
            self.sent = rest.to_vec();
            if let Value::List(_, Some(words)) = value {
                let words: Vec<_> = words.into_iter().map(Value::into_bytes).collect();
                let replies = replies(&words);
                let (command, script) = command(words);
                let server = self.server.clone();
                self.ledger.ask(Exchange::Redis { server, command, answer: None }, script);
                self.surplus.push_back(replies.saturating_sub(1));
            }
        }
    }

    pub(super) fn note_received(&mut self, bytes: &[u8]) {
        self.received.extend(bytes);
        while let Some((value, rest)) = Value::parse(&self.received) {
            self.received = rest.to_vec();
            if value.is_push() {
                continue;
            }
            if self.unread > 0 {
                self.unread -= 1;
                continue;
            }
            self.ledger.answer(&value.shown(""));
            self.unread = self.surplus.pop_front().unwrap_or(0);
        }
    }
}

/// How many replies a command has: one for each channel of a subscription.
fn replies(words: &[Vec<u8>]) -> usize {
    let subscribes = words.first().is_some_and(|name| {
        name.eq_ignore_ascii_case(b"SUBSCRIBE") || name.eq_ignore_ascii_case(b"UNSUBSCRIBE")
    });
    if subscribes { words.len() - 1 } else { 1 }
}

/// The words of a command. A script is named by its SHA-1, and what follows a password's command is left out.
fn command(words: Vec<Vec<u8>>) -> (Vec<Word>, Option<(String, String)>) {
    let upper = |number: usize| words.get(number).map(|word| text(word).to_uppercase());
    let (first, second) = (upper(0).unwrap_or_default(), upper(1).unwrap_or_default());
    let script = match (&*first, &*second) {
        ("EVAL", _) => Some(1),
        ("SCRIPT", "LOAD") => Some(2),
        _ => None,
    };
    let secret = match &*first {
        "AUTH" => 1,
        "HELLO" => 2,
        _ => usize::MAX,
    };
    let mut whole = None;
    let words = words.iter().enumerate().map(|(number, word)| {
        if Some(number) == script {
            let code = String::from_utf8_lossy(word).into_owned();
            let hash = Script::new(&code).get_hash().to_owned();
            whole = Some((hash.clone(), code));
            Word::Script { script: hash }
        } else {
            Word::Plain(if number >= secret { SECRET.to_owned() } else { text(word) })
        }
    });
    (words.collect(), whole)
}

impl Value {
    /// Reads the first value, and returns the rest. Returns `None` if the value's end is missing.
    fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let end = bytes.windows(2).position(|end| end == b"\r\n")?;
        let line = text(bytes.get(1..end).unwrap_or_default());
        let (kind, mut rest) = (*bytes.first()?, &bytes[end + 2..]);
        let count = line.parse::<usize>().ok();
        let is_map = matches!(kind, b'%' | b'|');
        match kind {
            b'$' | b'!' | b'=' => {
                let Some(length) = count else { return Some((Self::Bulk(None), rest)) };
                let bulk = rest.get(..length)?.to_vec();
                Some((Self::Bulk(Some(bulk)), rest.get(length.checked_add(2)?..)?))
            }
            b'*' | b'~' | b'>' | b'%' | b'|' => {
                let Some(count) = count else { return Some((Self::List(kind, None), rest)) };
                let mut values = Vec::new();
                for _ in 0..if is_map { count.checked_mul(2)? } else { count } {
                    let (value, after) = Self::parse(rest)?;
                    values.push(value);
                    rest = after;
                }
                Some((Self::List(kind, Some(values)), rest))
            }
            _ => Some((Self::Line(kind, line), rest)),
        }
    }

    /// Whether it is a message to a subscriber, which answers no command.
    fn is_push(&self) -> bool {
        match self {
            Self::List(b'>', _) => true,
            // As older clients get it.
            Self::List(_, Some(values)) => {
                values.len() == 3
                    && matches!(&values[0], Self::Bulk(Some(kind)) if kind == b"message")
            }
            _ => false,
        }
    }

    fn into_bytes(self) -> Vec<u8> {
        match self {
            Self::Bulk(bulk) => bulk.unwrap_or_default(),
            Self::Line(_, line) => line.into_bytes(),
            Self::List(..) => Vec::new(),
        }
    }

    /// The value as `redis-cli` shows it. The lines of a list begin with this.
    fn shown(&self, indent: &str) -> String {
        match self {
            Self::Line(b':', number) => format!("(integer) {number}"),
            Self::Line(b'-', error) => format!("(error) {error}"),
            Self::Line(b'_', _) | Self::Bulk(None) | Self::List(_, None) => "(nil)".to_owned(),
            Self::Line(_, line) => line.clone(),
            Self::Bulk(Some(bulk)) => format!("\"{}\"", text(bulk)),
            Self::List(_, Some(values)) if values.is_empty() => "(empty array)".to_owned(),
            Self::List(_, Some(values)) => {
                let inner = format!("{indent}   ");
                let lines = values.iter().enumerate();
                let lines: Vec<_> = lines
                    .map(|(number, value)| format!("{}) {}", number + 1, value.shown(&inner)))
                    .collect();
                lines.join(&format!("\n{indent}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn conversation() -> Conversation {
        Conversation::new("/tmp/redis.sock".to_owned(), Ledger::new(Arc::default()))
    }

    fn plain(word: &str) -> Word {
        Word::Plain(word.to_owned())
    }

    /// Bytes come as the network divides them.
    #[test]
    fn commands_and_answers_are_read_byte_by_byte_and_answers_keep_their_order() {
        let mut one = conversation();
        let sent = b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n*2\r\n$4\r\nINCR\r\n$3\r\n\r\nb\r\n";
        sent.iter().for_each(|byte| one.note_sent(&[*byte]));
        let received =
            b">2\r\n+message\r\n$1\r\nx\r\n$4\r\n\r\n33\r\n*2\r\n:1\r\n*2\r\n$-1\r\n+OK\r\n";
        received.iter().for_each(|byte| one.note_received(&[*byte]));
        let noted = one.ledger.take().into_iter().map(|noted| noted.exchange);
        let exchange = |command: [&str; 2], answer: &str| Exchange::Redis {
            server: "/tmp/redis.sock".to_owned(),
            command: command.map(plain).to_vec(),
            answer: Some(answer.to_owned()),
        };
        assert_eq!(
            noted.collect::<Vec<_>>(),
            [
                exchange(["GET", "a"], "\"\r\n33\""),
                exchange(["INCR", "\r\nb"], "1) (integer) 1\n2) 1) (nil)\n   2) OK"),
            ]
        );
    }

    #[test]
    fn message_to_a_subscriber_answers_no_command_and_each_channel_has_a_reply() {
        let mut one = conversation();
        let sent = "*3\r\n$11\r\nUNSUBSCRIBE\r\n$1\r\na\r\n$1\r\nb\r\n*1\r\n$4\r\nPING\r\n";
        one.note_sent(sent.as_bytes());
        let list = |words: [&str; 3]| {
            let words = words.map(|word| format!("${}\r\n{word}\r\n", word.len()));
            format!("*3\r\n{}", words.concat())
        };
        let received = [
            list(["message", "a", "freed"]),
            list(["unsubscribe", "a", "1"]),
            list(["message", "b", "freed"]),
            list(["unsubscribe", "b", "0"]),
            "+PONG\r\n".to_owned(),
        ];
        one.note_received(received.concat().as_bytes());
        let answers: Vec<_> = one
            .ledger
            .take()
            .into_iter()
            .map(|mut noted| noted.exchange.answer_mut().take().unwrap())
            .collect();
        assert_eq!(answers, ["1) \"unsubscribe\"\n2) \"a\"\n3) \"1\"", "PONG"]);
    }

    #[test]
    fn bytes_that_are_no_protocol_end_nothing() {
        let mut one = conversation();
        one.note_received(b"\r\n$18446744073709551615\r\n");
        one.note_sent(b"\r\n%18446744073709551615\r\n");
        assert!(one.ledger.take().is_empty());
    }

    #[test]
    fn script_is_named_by_its_hash_and_a_password_is_left_out() {
        let words = |words: &[&str]| words.iter().map(|word| word.as_bytes().to_vec()).collect();
        let (eval, script) = command(words(&["EVAL", "return 1", "0"]));
        let hash = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";
        assert_eq!(script, Some((hash.to_owned(), "return 1".to_owned())));
        assert_eq!(eval[1], Word::Script { script: hash.to_owned() });
        for secret in [["AUTH", "me", "secret"], ["hello", "3", "secret"]] {
            let (command, _) = command(words(&secret));
            assert!(!format!("{command:?}").contains("\"secret\""), "{command:?}");
        }
    }

    #[test]
    fn request_without_an_answer_is_taken_once_and_its_late_answer_is_not_the_next_ones() {
        let mut one = conversation();
        one.note_sent(b"*1\r\n$1\r\na\r\n");
        let [noted] = &one.ledger.take()[..] else { panic!("one request") };
        assert!(matches!(&noted.exchange, Exchange::Redis { answer: None, .. }));
        one.note_sent(b"*1\r\n$1\r\nb\r\n");
        one.note_received(b"+late\r\n+next\r\n");
        let [noted] = &one.ledger.take()[..] else { panic!("one request") };
        assert!(
            matches!(&noted.exchange, Exchange::Redis { answer: Some(answer), .. } if answer == "next")
        );
    }
}
