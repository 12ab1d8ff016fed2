//! `lock-client get`.

use base64::{Engine, prelude::BASE64_STANDARD};
use clap::Args;
use fence::{ResourceName, Token};
use lock_client::storage::Value;
use serde::Serialize;

use crate::{
    exit_code,
    failure::Failure,
    handle::parse_name,
    stdout::{print, print_bytes},
    storage::StorageServer,
};

#[derive(Args, Debug)]
pub(crate) struct Get {
    /// The resource to read
    #[arg(value_parser = parse_name)]
    resource: ResourceName,

    #[command(flatten)]
    storage: StorageServer,

    /// Print a JSON object: resource, version, token, content_type, and value, or value_base64 if
    /// the value is not UTF-8
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Output<'a> {
    resource: &'a ResourceName,
    version: u64,
    /// The token of the write, if it had one.
    token: Option<Token>,
    content_type: &'a str,
    #[serde(flatten)]
    value: Text<'a>,
}

#[derive(Serialize)]
enum Text<'a> {
    #[serde(rename = "value")]
    Utf8(&'a str),
    #[serde(rename = "value_base64")]
    Base64(String),
}

impl Get {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let Some(value) = self.storage.client()?.read(&self.resource).await? else {
            let reason = format!("resource `{}` has no value", self.resource);
            return Err(Failure::Message(exit_code::NO_VALUE, reason));
        };
        if self.json {
            print(&Output::new(&self.resource, &value))
        } else {
            print_bytes(&value.bytes)
        }
    }
}

impl<'a> Output<'a> {
    fn new(resource: &'a ResourceName, value: &'a Value) -> Self {
        let Value { bytes, content_type, version, token } = value;
        let value = match std::str::from_utf8(bytes) {
            Ok(text) => Text::Utf8(text),
            Err(_) => Text::Base64(BASE64_STANDARD.encode(bytes)),
        };
        Self { resource, version: *version, token: *token, content_type, value }
    }
}
