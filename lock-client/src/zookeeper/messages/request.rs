//! Requests, and the first message of a connection.

use super::{
    super::{jute::Writer, session::Session},
    AUTH_NUMBER, CREATE, ERROR, EVERYBODY, GET_CHILDREN, GET_DATA, PING_NUMBER, SET_DATA,
};

const DELETE: i32 = 2;
const EXISTS: i32 = 3;
const GET_ACCESS: i32 = 6;
const SYNC: i32 = 9;
const PING: i32 = 11;
const CHECK: i32 = 13;
const MULTI: i32 = 14;
const CREATE_CONTAINER: i32 = 19;
const MULTI_READ: i32 = 22;
const AUTH: i32 = 100;
const CLOSE_SESSION: i32 = -11;

const ANY_VERSION: i32 = -1;
const ALL_PERMISSIONS: i32 = 31;

/// The kind of a new node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Kind {
    Persistent,
    /// It is deleted when its session ends.
    Ephemeral,
    /// It is deleted some time after its last child.
    Container,
}

/// Who may read and change a new node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Access {
    Everybody,
    /// The user who creates it.
    Creator,
}

/// Whether a request also sets a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Watch {
    No,
    Yes,
}

/// A request without its number.
#[derive(Clone, Debug)]
pub(in super::super) struct Request {
    operation: i32,
    body: Vec<u8>,
}

impl Request {
    fn new(operation: i32, body: Writer) -> Self {
        Self { operation, body: body.finish() }
    }

    pub(in super::super) fn create(path: &str, data: &str, kind: Kind, access: Access) -> Self {
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

    pub(in super::super) fn delete(path: &str) -> Self {
        Self::new(DELETE, Writer::default().text(path).int(ANY_VERSION))
    }

    pub(in super::super) fn exists(path: &str) -> Self {
        Self::new(EXISTS, Writer::default().text(path).bool(false))
    }

    /// Sets a watch on a node that does not exist.
    pub(in super::super) fn watch_creation(path: &str) -> Self {
        Self::new(EXISTS, Writer::default().text(path).bool(true))
    }

    pub(in super::super) fn get_data(path: &str, watch: Watch) -> Self {
        Self::new(GET_DATA, Writer::default().text(path).bool(watch == Watch::Yes))
    }

    /// Writes a node of this version.
    pub(in super::super) fn set_data_at(path: &str, data: &str, version: i32) -> Self {
        Self::new(SET_DATA, Writer::default().text(path).text(data).int(version))
    }

    pub(in super::super) fn get_children(path: &str, watch: Watch) -> Self {
        Self::new(GET_CHILDREN, Writer::default().text(path).bool(watch == Watch::Yes))
    }

    /// Asks who may use a node.
    pub(in super::super) fn get_access(path: &str) -> Self {
        Self::new(GET_ACCESS, Writer::default().text(path))
    }

    /// Waits until the member has all that the leader has.
    pub(in super::super) fn sync(path: &str) -> Self {
        Self::new(SYNC, Writer::default().text(path))
    }

    /// Checks that a node exists, in a transaction.
    pub(in super::super) fn check(path: &str) -> Self {
        Self::new(CHECK, Writer::default().text(path).int(ANY_VERSION))
    }

    /// Makes one transaction of several requests.
    pub(in super::super) fn transaction(operations: &[Self]) -> Self {
        Self::new(MULTI, Self::join(operations))
    }

    /// Makes one request of several that read data or children. A server carries them out in their
    /// order. It sets no watches.
    pub(in super::super) fn reads(reads: &[Self]) -> Self {
        Self::new(MULTI_READ, Self::join(reads))
    }

    fn join(requests: &[Self]) -> Writer {
        let header = |body: Writer, operation, is_last| body.int(operation).bool(is_last).int(-1);
        let body = requests.iter().fold(Writer::default(), |body, request| {
            header(body, request.operation, false).raw(&request.body)
        });
        header(body, ERROR, true)
    }

    pub(in super::super) fn ping() -> Self {
        Self::new(PING, Writer::default())
    }

    pub(in super::super) fn log_in(user: &crate::service_url::User) -> Self {
        let credentials = format!("{}:{}", user.name, user.password);
        let body = Writer::default().int(0).text("digest").text(&credentials);
        Self::new(AUTH, body)
    }

    pub(in super::super) fn close_session() -> Self {
        Self::new(CLOSE_SESSION, Writer::default())
    }

    /// Encodes the request with its number.
    pub(in super::super) fn encode(&self, number: i32) -> Vec<u8> {
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
pub(in super::super) fn connect(session: Option<&Session>, timeout_ms: i32) -> Vec<u8> {
    let (id, password) =
        session.map_or((0, &[0; 16][..]), |session| (session.id, &session.password));
    // Protocol 0; no change that was seen; no member that can only read.
    let message = Writer::default().int(0).long(0).int(timeout_ms).long(id);
    let message = message.bytes(password).bool(false);
    Writer::default().bytes(&message.finish()).finish()
}
