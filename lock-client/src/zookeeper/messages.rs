//! The messages of ZooKeeper that are needed.
//!
//! They are those of
//! [`zookeeper.jute`](https://github.com/apache/zookeeper/blob/release-3.8.0/zookeeper-jute/src/main/resources/zookeeper.jute).

use super::{
    failure::Failure,
    jute::{Reader, Writer},
    server::User,
    session::Session,
};

const CREATE: i32 = 1;
const DELETE: i32 = 2;
const EXISTS: i32 = 3;
const GET_DATA: i32 = 4;
const SET_DATA: i32 = 5;
const GET_ACCESS: i32 = 6;
const GET_CHILDREN: i32 = 8;
const SYNC: i32 = 9;
const PING: i32 = 11;
const CHECK: i32 = 13;
const MULTI: i32 = 14;
const CREATE_CONTAINER: i32 = 19;
const MULTI_READ: i32 = 22;
const AUTH: i32 = 100;
const CLOSE_SESSION: i32 = -11;
/// The result of an operation in a transaction that failed.
const ERROR: i32 = -1;

/// The numbers of messages that answer no request of ours.
const NOTIFICATION: i32 = -1;
const PING_NUMBER: i32 = -2;
const AUTH_NUMBER: i32 = -4;

const ANY_VERSION: i32 = -1;
const ALL_PERMISSIONS: i32 = 31;
const MAY_CREATE: i32 = 4;
const EVERYBODY: &str = "world";
/// The bytes of a node's numbers, and of those before the number of its children.
const STAT_LENGTH: usize = 68;
const CHILD_COUNT_AT: usize = 56;
/// The bytes at the end of the answer to several requests.
const END_LENGTH: usize = 9;

/// The kind of a new node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Persistent,
    /// It is deleted when its session ends.
    Ephemeral,
    /// It is deleted some time after its last child.
    Container,
}

/// Who may read and change a new node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Everybody,
    /// The user who creates it.
    Creator,
}

/// Whether a request also sets a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Watch {
    No,
    Yes,
}

/// A request without its number.
#[derive(Clone, Debug)]
pub(super) struct Request {
    operation: i32,
    body: Vec<u8>,
}

impl Request {
    fn new(operation: i32, body: Writer) -> Self {
        Self { operation, body: body.finish() }
    }

    pub(super) fn create(path: &str, data: &str, kind: Kind, access: Access) -> Self {
        let (operation, flags) = match kind {
            Kind::Persistent => (CREATE, 0),
            Kind::Ephemeral => (CREATE, 1),
            Kind::Container => (CREATE_CONTAINER, 4),
        };
        let (scheme, id) = match access {
            Access::Everybody => (EVERYBODY, "anyone"),
            Access::Creator => ("auth", ""),
        };
        let body = Writer::default().text(path).text(data);
        let access = body.int(1).int(ALL_PERMISSIONS).text(scheme).text(id);
        Self::new(operation, access.int(flags))
    }

    pub(super) fn delete(path: &str) -> Self {
        Self::new(DELETE, Writer::default().text(path).int(ANY_VERSION))
    }

    pub(super) fn exists(path: &str) -> Self {
        Self::new(EXISTS, Writer::default().text(path).bool(false))
    }

    /// Sets a watch on a node that does not exist.
    pub(super) fn watch_creation(path: &str) -> Self {
        Self::new(EXISTS, Writer::default().text(path).bool(true))
    }

    pub(super) fn get_data(path: &str, watch: Watch) -> Self {
        Self::new(GET_DATA, Writer::default().text(path).bool(watch == Watch::Yes))
    }

    /// Writes a node of this version.
    pub(super) fn set_data_at(path: &str, data: &str, version: i32) -> Self {
        Self::new(SET_DATA, Writer::default().text(path).text(data).int(version))
    }

    pub(super) fn get_children(path: &str, watch: Watch) -> Self {
        Self::new(GET_CHILDREN, Writer::default().text(path).bool(watch == Watch::Yes))
    }

    /// Asks who may use a node.
    pub(super) fn get_access(path: &str) -> Self {
        Self::new(GET_ACCESS, Writer::default().text(path))
    }

    /// Waits until the member has all that the leader has.
    pub(super) fn sync(path: &str) -> Self {
        Self::new(SYNC, Writer::default().text(path))
    }

    /// Checks that a node exists, in a transaction.
    pub(super) fn check(path: &str) -> Self {
        Self::new(CHECK, Writer::default().text(path).int(ANY_VERSION))
    }

    /// Makes one transaction of several requests.
    pub(super) fn transaction(operations: &[Self]) -> Self {
        Self::new(MULTI, Self::join(operations))
    }

    /// Makes one request of several that read data or children. A server carries them out in their
    /// order. It sets no watches.
    pub(super) fn reads(reads: &[Self]) -> Self {
        Self::new(MULTI_READ, Self::join(reads))
    }

    fn join(requests: &[Self]) -> Writer {
        let header = |body: Writer, operation, is_last| body.int(operation).bool(is_last).int(-1);
        let body = requests.iter().fold(Writer::default(), |body, request| {
            header(body, request.operation, false).raw(&request.body)
        });
        header(body, ERROR, true)
    }

    pub(super) fn ping() -> Self {
        Self::new(PING, Writer::default())
    }

    pub(super) fn log_in(user: &User) -> Self {
        let body = Writer::default().int(0).text("digest").text(&user.credentials());
        Self::new(AUTH, body)
    }

    pub(super) fn close_session() -> Self {
        Self::new(CLOSE_SESSION, Writer::default())
    }

    /// Encodes the request with its number.
    pub(super) fn encode(&self, number: i32) -> Vec<u8> {
        let number = match self.operation {
            PING => PING_NUMBER,
            AUTH => AUTH_NUMBER,
            _ => number,
        };
        let message = Writer::default().int(number).int(self.operation).raw(&self.body);
        Writer::default().bytes(&message.finish()).finish()
    }
}

/// Encodes the first message of a connection: it makes a session, or goes on with one.
pub(super) fn connect(session: Option<&Session>, timeout_ms: i32) -> Vec<u8> {
    let (id, password) =
        session.map_or((0, &[0; 16][..]), |session| (session.id, &session.password));
    // Protocol 0; no change that was seen; no member that can only read.
    let message = Writer::default().int(0).long(0).int(timeout_ms).long(id);
    let message = message.bytes(password).bool(false);
    Writer::default().bytes(&message.finish()).finish()
}

/// Parses the answer to the first message.
pub(super) fn connected(answer: &[u8]) -> Result<Session, Failure> {
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
pub(super) enum Received {
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
    pub(super) fn parse(message: &[u8]) -> Result<Self, Failure> {
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
pub(super) struct Node {
    pub(super) data: String,
    /// The number of the change that created it.
    pub(super) created: i64,
    pub(super) version: i32,
    /// The session that it ends with; 0 if it is not ephemeral.
    pub(super) session: i64,
}

impl Node {
    pub(super) fn parse(answer: &[u8]) -> Result<Self, Failure> {
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
pub(super) fn children(answer: &[u8]) -> Result<Vec<String>, Failure> {
    read_children(&mut Reader::new(answer))
}

fn read_children(answer: &mut Reader<'_>) -> Result<Vec<String>, Failure> {
    let count = answer.int()?;
    (0..count).map(|_| answer.text().map(str::to_owned)).collect()
}

/// Parses a node's numbers, and returns how many children it has.
pub(super) fn child_count(answer: &[u8]) -> Result<i32, Failure> {
    let mut answer = Reader::new(answer);
    answer.skip(CHILD_COUNT_AT)?;
    answer.int()
}

/// Parses a node's access list. Returns whether everybody may create nodes below it.
pub(super) fn lets_everybody_create(answer: &[u8]) -> Result<bool, Failure> {
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
pub(super) struct Results {
    server: String,
    encoded: Vec<u8>,
    taken: usize,
}

impl Results {
    /// Joins the answers to requests that read several nodes.
    pub(super) fn new(server: &str, answers: &[Vec<u8>]) -> Result<Self, Failure> {
        let mut encoded = Vec::new();
        for answer in answers {
            let length = answer.len().checked_sub(END_LENGTH).ok_or_else(Failure::malformed)?;
            encoded.extend(&answer[..length]);
        }
        Ok(Self { server: server.to_owned(), encoded, taken: 0 })
    }

    /// Takes the result of a request for data.
    pub(super) fn node(&mut self) -> Result<Node, Failure> {
        self.take(GET_DATA, Node::read)
    }

    /// Takes the result of a request for children.
    pub(super) fn children(&mut self) -> Result<Vec<String>, Failure> {
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
pub(super) fn transacted(server: &str, answer: &[u8]) -> Result<(), Failure> {
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
