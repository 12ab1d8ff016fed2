//! The lock services that are checked.

mod redis;
mod sql;

pub(super) use self::{
    redis::{Cluster, Nodes, OneRedis, Primary},
    sql::{File, Maria, Tables},
};
