//! Identities, and what each of them may do.

use std::fmt;

use clap::ValueEnum;
use fence::Token;
use serde::{Deserialize, Serialize};

use super::{bearer::TokenHash, ceiling::Ceiling, certificate::CertificateName};

/// A client that the server knows, as an entry of the auth file.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Identity {
    /// Its name in logs and errors.
    pub(crate) name: String,
    /// The hash of its bearer token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) token_sha256: Option<TokenHash>,
    /// A name in its certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) certificate_san: Option<CertificateName>,
    /// What it may do: everything that one of these allows.
    #[serde(rename = "scope")]
    pub(crate) scopes: Vec<Scope>,
}

/// What may be done with resources whose names begin with certain texts.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Scope {
    /// The beginnings of the names; the empty one is of all names.
    pub(crate) prefixes: Vec<String>,
    /// What may be done.
    pub(crate) allow: Vec<Permission>,
    /// How high tokens may be. Without it, the server's own ceiling holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) token_ceiling: Option<Ceiling>,
}

/// Something that an identity may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Permission {
    /// Read values and fences, without a claim.
    Read,
    /// Write and delete values.
    Write,
    /// Claim; with `read`, also by fenced reads.
    Claim,
    /// List resources.
    List,
    /// See how the server itself is.
    Operate,
}

impl Identity {
    /// The highest token with which it may act on the resource or prefix; `None` if it may not act
    /// on it at all.
    pub(super) fn ceiling(
        &self,
        permission: Permission,
        name: &str,
        default: Ceiling,
    ) -> Option<Token> {
        let scopes = self.scopes.iter().filter(|scope| scope.allows(permission, name));
        scopes.map(|scope| scope.token_ceiling.unwrap_or(default).highest_token()).max()
    }

    /// Whether it may operate the server, which has no name that a prefix could select.
    pub(super) fn operates(&self) -> bool {
        self.scopes.iter().any(|scope| scope.allow.contains(&Permission::Operate))
    }
}

impl Scope {
    fn allows(&self, permission: Permission, name: &str) -> bool {
        self.allow.contains(&permission)
            && self.prefixes.iter().any(|prefix| name.starts_with(prefix))
    }
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Claim => "claim",
            Self::List => "list",
            Self::Operate => "operate",
        })
    }
}
