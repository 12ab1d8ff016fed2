//! `auth`: to make identities.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use anyhow::Context;
use clap::{Args, Subcommand};

use super::{audited::Action, print};
use crate::access::{
    auth_file,
    bearer::{BearerToken, TokenHash},
    ceiling::Ceiling,
    certificate::CertificateName,
    identity::{Identity, Permission, Scope},
};

#[derive(Debug, Subcommand)]
pub(super) enum AuthCommand {
    /// Make an identity, add it to the auth file, and print its bearer token, or its entry if it has
    /// a certificate.
    New(New),
}

#[derive(Debug, Args)]
pub(super) struct New {
    /// The file to add the identity to. It is created if it is missing.
    #[arg(long, env = "FENCED_AUTH_FILE", value_name = "FILE")]
    auth_file: PathBuf,

    /// The identity's name in logs and errors.
    #[arg(long)]
    name: String,

    /// The beginning of the names of resources; '' for all. May be repeated.
    #[arg(long = "prefix", required = true, value_name = "PREFIX")]
    prefixes: Vec<String>,

    /// A name in the client's certificate: a DNS name or a URI. The identity then has no bearer token,
    /// and its entry is printed instead.
    #[arg(long, value_name = "NAME")]
    certificate_san: Option<CertificateName>,

    /// What the identity may do with these resources, separated by commas.
    #[arg(long, required = true, value_delimiter = ',', value_name = "PERMISSIONS")]
    allow: Vec<Permission>,

    /// How high its tokens may be: a duration ahead of the server's clock, a token, or none. Without
    /// this, the server's own ceiling holds.
    #[arg(long, value_name = "CEILING")]
    token_ceiling: Option<Ceiling>,
}

impl AuthCommand {
    pub(super) fn action(&self) -> Action {
        let Self::New(New { name, .. }) = self;
        Action { command: "auth new", target: Some(name.clone()), token: None }
    }

    pub(super) fn run(self) -> anyhow::Result<()> {
        match self {
            Self::New(new) => new.run(),
        }
    }
}

impl New {
    /// Prints nothing else than the bearer token on stdout, so that it can go into a file.
    fn run(self) -> anyhow::Result<()> {
        let Self { auth_file, name, prefixes, certificate_san, allow, token_ceiling } = self;
        let scopes = vec![Scope { prefixes, allow, token_ceiling }];
        if certificate_san.is_some() {
            let identity = Identity { name, token_sha256: None, certificate_san, scopes };
            print(auth_file::append(&auth_file, identity)?.trim());
            return Ok(());
        }
        let token = BearerToken::random().context("there are no random numbers")?;
        let identity = Identity {
            name: name.clone(),
            token_sha256: Some(TokenHash::from_token(token.as_str().as_bytes())),
            certificate_san: None,
            scopes,
        };
        auth_file::append(&auth_file, identity)?;
        writeln!(io::stdout(), "{}", token.as_str()).with_context(|| {
            format!("the token was not printed: remove {name:?} from {}", auth_file.display())
        })
    }
}
