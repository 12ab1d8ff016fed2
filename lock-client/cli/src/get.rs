//! `lock-client get`.

use base64::{Engine, prelude::BASE64_STANDARD};
use clap::Args;
use fence::{ResourceName, Token};
use serde::Serialize;

use super::{
    Failure,
    events::{print, print_bytes},
    name, storage,
};
use lock_client::storage::Value;

#[derive(Args, Debug)]
pub(crate) struct Get {
    /// The resource to read
    #[arg(value_parser = name)]
    resource: ResourceName,

    /// The storage server
    #[arg(long, env = "FENCED_STORAGE", hide_env_values = true, value_name = "URL")]
    storage: String,

    /// Print a JSON object: resource, version, token, content_type, and value, or value_base64 if it is
    /// not UTF-8
    #[arg(long)]
    json: bool,
}

/// What the command prints.
#[derive(Serialize)]
struct Shown<'a> {
    resource: &'a ResourceName,
    version: u64,
    /// What it was written with, if anything.
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
        let Some(value) = storage(&self.storage)?.read(&self.resource).await? else {
            return Err(Failure::NotThere(format!("{} has no value", self.resource)));
        };
        if self.json { print(&shown(&self.resource, &value)) } else { print_bytes(&value.bytes) }
    }
}

fn shown<'a>(resource: &'a ResourceName, value: &'a Value) -> Shown<'a> {
    let Value { bytes, content_type, version, token } = value;
    let value = match std::str::from_utf8(bytes) {
        Ok(text) => Text::Utf8(text),
        Err(_) => Text::Base64(BASE64_STANDARD.encode(bytes)),
    };
    Shown { resource, version: *version, token: *token, content_type, value }
}
