//! Answers, and messages that answer no request.

use super::{
    super::{failure::Failure, jute::Reader, session::Session},
    AUTH_NUMBER, CREATE, ERROR, EVERYBODY, GET_CHILDREN, GET_DATA, PING_NUMBER, SET_DATA,
};

/// The number of messages that are about a watch.
const NOTIFICATION: i32 = -1;
const MAY_CREATE: i32 = 4;
/// The bytes of a node's numbers, and of those before the number of its children.
const STAT_LENGTH: usize = 68;
const CHILD_COUNT_AT: usize = 56;
/// The bytes at the end of the answer to several requests.
const END_LENGTH: usize = 9;

/// Parses the answer to the first message.
pub(in super::super) fn connected(answer: &[u8]) -> Result<Session, Failure> {
    let mut answer = Reader::new(answer);
    let (_protocol, timeout_ms, id) = (answer.int()?, answer.int()?, answer.long()?);
    let password = answer.bytes()?.to_vec();
    match timeout_ms.try_into() {
        Ok(timeout_ms) if id != 0 && timeout_ms > 0 => Ok(Session { id, password, timeout_ms }),
        _ => Err(Failure::Expired),
    }
}

/// A message from the server.
#[derive(Debug)]
pub(in super::super) enum Received {
    /// The answer to the first request that is not answered, and its code.
    Answer(i32, Vec<u8>),
    /// The answer to a ping.
    Pong,
    /// The answer to a login, and its code.
    LoggedIn(i32),
    /// A watch has seen a change at this path.
    Changed(String),
}

impl Received {
    pub(in super::super) fn parse(message: &[u8]) -> Result<Self, Failure> {
        let mut message = Reader::new(message);
        let (number, _revision, code) = (message.int()?, message.long()?, message.int()?);
        Ok(match number {
            NOTIFICATION => {
                let (_kind, _state) = (message.int()?, message.int()?);
                Self::Changed(message.text()?.to_owned())
            }
            PING_NUMBER => Self::Pong,
            AUTH_NUMBER => Self::LoggedIn(code),
            _ => Self::Answer(code, message.rest().to_vec()),
        })
    }
}

/// A node: its data, and the numbers that are needed.
#[derive(Clone, Debug)]
pub(in super::super) struct Node {
    pub(in super::super) data: String,
    /// The number of the change that created it.
    pub(in super::super) created: i64,
    pub(in super::super) version: i32,
    /// The session that it ends with; 0 if it is not ephemeral.
    pub(in super::super) session: i64,
}

impl Node {
    pub(in super::super) fn parse(answer: &[u8]) -> Result<Self, Failure> {
        Self::read(&mut Reader::new(answer))
    }

    fn read(answer: &mut Reader<'_>) -> Result<Self, Failure> {
        let data = answer.text()?.to_owned();
        let (created, _changed) = (answer.long()?, answer.long()?);
        let (_created_at, _changed_at) = (answer.long()?, answer.long()?);
        let (version, _children, _access) = (answer.int()?, answer.int()?, answer.int()?);
        let session = answer.long()?;
        let (_length, _count, _last) = (answer.int()?, answer.int()?, answer.long()?);
        Ok(Self { data, created, version, session })
    }
}

/// Parses the names of a node's children.
pub(in super::super) fn children(answer: &[u8]) -> Result<Vec<String>, Failure> {
    read_children(&mut Reader::new(answer))
}

fn read_children(answer: &mut Reader<'_>) -> Result<Vec<String>, Failure> {
    let count = answer.int()?;
    (0..count).map(|_| answer.text().map(str::to_owned)).collect()
}

/// Parses a node's numbers, and returns how many children it has.
pub(in super::super) fn child_count(answer: &[u8]) -> Result<i32, Failure> {
    let mut answer = Reader::new(answer);
    answer.skip(CHILD_COUNT_AT)?;
    answer.int()
}

/// Parses a node's access list. Returns whether everybody may create nodes below it.
pub(in super::super) fn lets_everybody_create(answer: &[u8]) -> Result<bool, Failure> {
    let mut answer = Reader::new(answer);
    let mut everybody_may = false;
    for _ in 0..answer.int()? {
        let (permissions, scheme, _id) = (answer.int()?, answer.text()?, answer.text()?);
        everybody_may |= scheme == EVERYBODY && permissions & MAY_CREATE != 0;
    }
    Ok(everybody_may)
}

/// The results of several reads. They are taken in the order of the reads.
#[derive(Debug)]
pub(in super::super) struct Results {
    server: String,
    encoded: Vec<u8>,
    taken: usize,
}

impl Results {
    /// Joins the answers to requests that read several nodes.
    pub(in super::super) fn new(server: &str, answers: &[Vec<u8>]) -> Result<Self, Failure> {
        let mut encoded = Vec::new();
        for answer in answers {
            let length = answer.len().checked_sub(END_LENGTH).ok_or_else(Failure::malformed)?;
            encoded.extend(&answer[..length]);
        }
        Ok(Self { server: server.to_owned(), encoded, taken: 0 })
    }

    /// Takes the result of a request for data.
    pub(in super::super) fn node(&mut self) -> Result<Node, Failure> {
        self.take(GET_DATA, Node::read)
    }

    /// Takes the result of a request for children.
    pub(in super::super) fn children(&mut self) -> Result<Vec<String>, Failure> {
        self.take(GET_CHILDREN, read_children)
    }

    fn take<T>(
        &mut self,
        kind: i32,
        read: impl FnOnce(&mut Reader<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut results = Reader::new(&self.encoded[self.taken..]);
        let (operation, _is_end, _code) = (results.int()?, results.bool()?, results.int()?);
        let result = match operation {
            ERROR => {
                let code = results.int()?;
                Failure::check(&self.server, code).and_then(|()| Err(Failure::malformed()))
            }
            operation if operation == kind => read(&mut results),
            _ => Err(Failure::malformed()),
        };
        self.taken = self.encoded.len() - results.rest().len();
        result
    }
}

/// Parses the answer to a transaction, and returns the failure of the first operation that failed.
pub(in super::super) fn transacted(server: &str, answer: &[u8]) -> Result<(), Failure> {
    let mut answer = Reader::new(answer);
    loop {
        let (operation, is_end, _code) = (answer.int()?, answer.bool()?, answer.int()?);
        match operation {
            _ if is_end => return Ok(()),
            ERROR => {
                let code = answer.int()?;
                if !Failure::is_of_another_operation(code) {
                    return Failure::check(server, code);
                }
            }
            CREATE => drop(answer.text()?),
            SET_DATA => answer.skip(STAT_LENGTH)?,
            _ => {}
        }
    }
}
