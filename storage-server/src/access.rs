//! Who may do what.
//!
//! Without an auth file, every client may do everything. With one, a client proves its identity with
//! a bearer token or a certificate, and may do what the identity's scopes allow.

pub(crate) mod auth_file;
pub(crate) mod bearer;
pub(crate) mod ceiling;
pub(crate) mod certificate;
pub(crate) mod identity;

use std::{borrow::Cow, future::pending, path::PathBuf, sync::Arc};

use fence::Token;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use self::{
    auth_file::{AuthFileError, parse, read},
    bearer::TokenHash,
    ceiling::Ceiling,
    certificate::CertificateNames,
    identity::{Identity, Permission},
};
use crate::reread::{read_without_blocking, reread};

/// Who may do what. By default, every client may do everything.
#[derive(Clone, Debug, Default)]
pub struct Access(Option<Arc<FollowedFile>>);

/// An auth file that is read again and again.
#[derive(Debug)]
struct FollowedFile {
    known: watch::Receiver<Known>,
    _task: AbortOnDropHandle<()>,
}

/// What the auth file says.
#[derive(Debug)]
pub(crate) struct Known {
    /// The identities of the last file that was not broken.
    identities: Vec<Arc<Identity>>,
    /// What is wrong with the file now.
    fault: Option<AuthFileError>,
}

impl Access {
    /// Allows only what the scopes of an auth file allow.
    ///
    /// The file is read again every few seconds. While it is broken, the identities from before stay
    /// valid, and no others.
    ///
    /// # Errors
    /// If the file is missing or broken, or all users of the machine may write to it.
    pub async fn from_file(path: impl Into<PathBuf>) -> Result<Self, AuthFileError> {
        let path = path.into();
        let read = {
            let path = path.clone();
            move || read(&path)
        };
        let text = read_without_blocking(read.clone()).await?;
        let identities = parse(&path, &text)?;
        let (sender, known) = watch::channel(Known { identities, fault: None });
        // All identities are taken over at once, or all stay as they are.
        let take_over = move |text: Result<String, _>| match text.and_then(|it| parse(&path, &it)) {
            Ok(identities) => {
                tracing::info!(identities = identities.len(), "the auth file was read again");
                sender.send_replace(Known { identities, fault: None });
            }
            Err(fault) => {
                tracing::error!("{fault}. The identities from before stay valid");
                sender.send_modify(|known| known.fault = Some(fault));
            }
        };
        let task = tokio::spawn(reread(Ok(text), read, take_over));
        Ok(Self(Some(Arc::new(FollowedFile { known, _task: AbortOnDropHandle::new(task) }))))
    }

    /// Identifies the client by the bearer token that it sent, or else by the names in its
    /// certificate; `None` if it has to prove who it is.
    pub(crate) fn identify(
        &self,
        credentials: Credentials<'_>,
        certificate: Option<&CertificateNames>,
    ) -> Option<Caller> {
        let Some(file) = &self.0 else {
            return Some(Caller(None));
        };
        let known = file.known.borrow();
        let mut identities = known.identities.iter();
        let identity = match credentials {
            Credentials::BearerToken(token) => {
                let hash = Some(TokenHash::from_token(&token));
                identities.find(|identity| identity.token_sha256 == hash)
            }
            Credentials::None => {
                let names = certificate?;
                identities.find(|identity| {
                    identity.certificate_san.as_ref().is_some_and(|name| names.contains(name))
                })
            }
            Credentials::Unusable => None,
        };
        Some(Caller(Some(identity?.clone())))
    }

    /// Follows the changes of the auth file from now on.
    pub(crate) fn changes(&self) -> Changes {
        let known = self.0.as_ref().map(|file| {
            let mut known = file.known.clone();
            known.mark_unchanged();
            known
        });
        Changes(known)
    }

    /// What is wrong with the auth file at this moment.
    pub(crate) fn fault(&self) -> Option<String> {
        self.0.as_ref()?.known.borrow().fault.as_ref().map(AuthFileError::to_string)
    }
}

/// The changes of an auth file that the server takes over.
#[derive(Debug)]
pub(crate) struct Changes(Option<watch::Receiver<Known>>);

impl Changes {
    /// Waits until a changed file is taken over, and returns how many identities it has.
    ///
    /// # Cancellation safety
    /// If this future is dropped, no change is lost.
    pub(crate) async fn next(&mut self) -> usize {
        let Some(known) = &mut self.0 else { return pending().await };
        loop {
            if known.changed().await.is_err() {
                return pending().await;
            }
            let known = known.borrow_and_update();
            if known.fault.is_none() {
                return known.identities.len();
            }
        }
    }
}

/// What a request says of its client.
pub(crate) enum Credentials<'a> {
    /// Nothing.
    None,
    /// A bearer token, which may be wrong.
    BearerToken(Cow<'a, [u8]>),
    /// Something else, or several tokens. A gateway's own certificate must not stand in for it.
    Unusable,
}

/// The client that sent a request: a known identity, or anyone if the server has no auth file.
#[derive(Clone, Debug)]
pub(crate) struct Caller(Option<Arc<Identity>>);

impl Caller {
    /// The highest token with which the caller may act on the resource or prefix; `None` if it may not
    /// act on it at all. The default is the ceiling of scopes that have none of their own.
    pub(crate) fn ceiling(
        &self,
        permission: Permission,
        name: &str,
        default: Ceiling,
    ) -> Option<Token> {
        match &self.0 {
            Some(identity) => identity.ceiling(permission, name, default),
            None => Some(default.highest_token()),
        }
    }

    /// Whether the caller may operate the server, which has no name that a prefix could select.
    pub(crate) fn operates(&self) -> bool {
        self.0.as_ref().is_none_or(|identity| identity.operates())
    }

    /// The name of the identity, if the server has an auth file.
    pub(crate) fn identity_name(&self) -> Option<String> {
        self.0.as_ref().map(|identity| identity.name.clone())
    }

    /// The name of the identity; empty if the server has no auth file.
    pub(crate) fn name(&self) -> &str {
        self.0.as_ref().map_or("", |identity| &identity.name)
    }
}
