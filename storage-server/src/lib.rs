//! An HTTP service that persists the highest fencing token per resource and rejects stale writes.
//!
//! [`run`] is the whole command. A program that brings its own listener or its own [`Store`] calls
//! [`serve`]:
//!
//! ```no_run
//! use storage_server::{Config, Migrations, MissingFile, Replication, open_store, serve};
//! use tokio::net::TcpListener;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let listener = TcpListener::bind("127.0.0.1:8034").await?;
//! let (missing_file, migrations) = (MissingFile::Create, Migrations::Apply);
//! let store =
//!     open_store("sqlite:fenced.db", missing_file, migrations, &Replication::default()).await?;
//! serve(listener, store, Config::default(), std::future::pending()).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # A map of the code
//! A request passes through the modules in this order. `connections` accepts it, encrypted if wanted
//! (`tls`), and closes the connections whose clients keep the server waiting. `http` parses it into
//! an operation (`operation`) and queues that, if its client may do so (`access`) and not too often
//! (`rate_limit`), and there is memory for its value (`memory_budget`). `committer` takes the queued operations
//! as one batch and applies each to its resource's row (`row`), where the fencing rule decides. The row
//! has the answers to writes that may be sent again (`sequence`). A lock of Terraform (`http/terraform`) is
//! a row like any other, of which the committer knows no more. A `transaction` has several
//! operations, which take effect together or not at all.
//! `store` makes the changed rows durable. Only then does `http` send the answers. `metrics` counts
//! all of it, and `audit` records what was rejected. Start with `row`, then read `committer/group_commit`.

mod command;
mod config;
mod cut_offs;
mod logs;
mod serve;

mod connections;
mod http;
mod memory_budget;
mod metrics;
mod prober;
mod rate_limit;
mod tls;

mod access;
mod audit;
mod reread;

mod operation;
mod row;
mod sequence;
mod transaction;

mod committer;

mod store;

mod causes;
mod guarded_file;
mod toml_error;

pub use access::{
    Access,
    auth_file::AuthFileError,
    ceiling::{Ceiling, InvalidCeiling},
};
pub use audit::file::{AuditLog, AuditLogError};
pub use command::run;
pub use config::{Config, Enforcement, Hosts};
pub use operation::{Content, Value};
pub use row::{Described, Row, StoredValue};
pub use sequence::{Answers, InvalidAnswers};
pub use serve::{ServeError, serve};
pub use store::{
    Change, Decide, ReadsAtOnce, Store, Wanted, WantedValue,
    error::{ApplyError, OpenError, ReadError, Unreachable, UnreadableRow},
    list::{Listed, Listing, Page},
    open::{MissingFile, open_careless_sqlite, open_store},
    replication::Replication,
    schema::Migrations,
};
pub use tls::{ClientCertificates, Tls, TlsFileError, TlsFiles};
