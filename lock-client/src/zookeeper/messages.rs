//! The messages of ZooKeeper that are needed.
//!
//! They are those of
//! [`zookeeper.jute`](https://github.com/apache/zookeeper/blob/release-3.8.0/zookeeper-jute/src/main/resources/zookeeper.jute).

mod answer;
mod request;

pub(super) use self::{
    answer::{
        Node, Received, Results, child_count, children, connected, lets_everybody_create,
        transacted,
    },
    request::{Access, Kind, Request, Watch, connect},
};

const CREATE: i32 = 1;
const GET_DATA: i32 = 4;
const SET_DATA: i32 = 5;
const GET_CHILDREN: i32 = 8;
/// The result of an operation in a transaction that failed.
const ERROR: i32 = -1;

/// The numbers of a ping and of a login, and of their answers.
const PING_NUMBER: i32 = -2;
const AUTH_NUMBER: i32 = -4;

const EVERYBODY: &str = "world";
