//! What the server reports about itself.

use std::collections::HashMap;

use ::redis::{RedisResult, aio::ConnectionLike};

use super::server::{ErrorReply, ask};

/// The settings that the checks need.
const SETTINGS: &[&str] = &[
    "appendonly",
    "appendfsync",
    "no-appendfsync-on-rewrite",
    "save",
    "maxmemory",
    "maxmemory-policy",
];

/// What the server reports about itself, as far as the user may see it.
#[derive(Debug, Default)]
pub(super) struct Facts {
    info: HashMap<String, String>,
    info_error: Option<ErrorReply>,
    settings: HashMap<String, String>,
    settings_error: Option<ErrorReply>,
    user: String,
}

impl Facts {
    /// Queries the server. The user is the one of the URL if the server doesn't report another.
    ///
    /// # Errors
    /// If the connection is lost.
    pub(super) async fn query(
        connection: &mut impl ConnectionLike,
        url_user: &str,
    ) -> RedisResult<Self> {
        let mut facts = Self::query_info(connection).await?;
        // Before 7.0, CONFIG GET takes one setting.
        for setting in SETTINGS {
            let command = ::redis::cmd("CONFIG").arg("GET").arg(setting).to_owned();
            match ask::<HashMap<String, String>>(connection, &command).await? {
                Ok(settings) => facts.settings.extend(settings),
                Err(rejection) => facts.settings_error = Some(rejection),
            }
        }
        // Before 6.0 there are no users, and a user may lack the permission.
        let user = ask(connection, &::redis::cmd("ACL").arg("WHOAMI").to_owned()).await?;
        facts.user = user.unwrap_or_else(|_| url_user.to_owned());
        Ok(facts)
    }

    /// Queries INFO alone.
    ///
    /// # Errors
    /// If the connection is lost.
    pub(super) async fn query_info(connection: &mut impl ConnectionLike) -> RedisResult<Self> {
        let info = ask::<String>(connection, &::redis::cmd("INFO")).await?;
        Ok(match info {
            Ok(info) => Self { info: fields(&info), ..Self::default() },
            Err(rejection) => Self { info_error: Some(rejection), ..Self::default() },
        })
    }

    /// A field of INFO.
    pub(super) fn info(&self, field: &str) -> Option<&str> {
        self.info.get(field).map(String::as_str)
    }

    /// All fields of INFO whose names have this prefix.
    pub(super) fn infos(&self, prefix: &str) -> impl Iterator<Item = (&str, &str)> {
        let all = self.info.iter().filter(move |(name, _)| name.starts_with(prefix));
        all.map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// A setting.
    pub(super) fn setting(&self, name: &str) -> Option<&str> {
        self.settings.get(name).map(String::as_str)
    }

    /// Why there are no fields of INFO.
    pub(super) fn info_error(&self) -> Option<&ErrorReply> {
        self.info_error.as_ref()
    }

    /// Why there are no settings.
    pub(super) fn settings_error(&self) -> Option<&ErrorReply> {
        self.settings_error.as_ref()
    }

    /// The user of the connection.
    pub(super) fn user(&self) -> &str {
        &self.user
    }
}

fn fields(info: &str) -> HashMap<String, String> {
    let fields = info.lines().filter_map(|line| line.split_once(':'));
    fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[cfg(test)]
impl Facts {
    /// The facts of a server that reports this and nothing else.
    pub(super) fn new(info: &str, settings: &[(&str, &str)]) -> Self {
        let settings = settings.iter().map(|&(name, value)| (name.to_owned(), value.to_owned()));
        Self { info: fields(info), settings: settings.collect(), ..Self::default() }
    }
}
