//! What the server tells of itself.

use std::collections::HashMap;

use redis::{RedisResult, aio::ConnectionLike};

use super::connection::{Refusal, ask};

/// The settings that the checks look at.
const SETTINGS: [&str; 6] = [
    "appendonly",
    "appendfsync",
    "no-appendfsync-on-rewrite",
    "save",
    "maxmemory",
    "maxmemory-policy",
];

/// What the server tells of itself, as far as the user may see it.
#[derive(Debug, Default)]
pub(super) struct Facts {
    info: HashMap<String, String>,
    info_refusal: Option<Refusal>,
    settings: HashMap<String, String>,
    settings_refusal: Option<Refusal>,
    user: String,
}

impl Facts {
    /// Asks for them. The user is the one that was named, unless the server says otherwise.
    ///
    /// # Errors
    /// If the connection is lost.
    pub(super) async fn of(
        connection: &mut impl ConnectionLike,
        named_user: &str,
    ) -> RedisResult<Self> {
        let mut facts = Self::default();
        match ask::<String>(connection, &redis::cmd("INFO")).await? {
            Ok(info) => facts.info = fields(&info),
            Err(refusal) => facts.info_refusal = Some(refusal),
        }
        // One at a time: before 7.0 Redis takes one only.
        for setting in SETTINGS {
            let command = redis::cmd("CONFIG").arg("GET").arg(setting).to_owned();
            match ask::<HashMap<String, String>>(connection, &command).await? {
                Ok(settings) => facts.settings.extend(settings),
                Err(refusal) => facts.settings_refusal = Some(refusal),
            }
        }
        // Before 6.0 there are no users, and not all of them may ask.
        let user = ask(connection, &redis::cmd("ACL").arg("WHOAMI").to_owned()).await?;
        facts.user = user.unwrap_or_else(|_| named_user.to_owned());
        Ok(facts)
    }

    /// A field of INFO.
    pub(super) fn info(&self, field: &str) -> Option<&str> {
        self.info.get(field).map(String::as_str)
    }

    /// All fields of INFO whose names begin so.
    pub(super) fn infos<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let all = self.info.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        all.filter(move |(name, _)| name.starts_with(prefix))
    }

    /// A setting.
    pub(super) fn setting(&self, name: &str) -> Option<&str> {
        self.settings.get(name).map(String::as_str)
    }

    /// Why INFO tells nothing.
    pub(super) fn info_refusal(&self) -> Option<&Refusal> {
        self.info_refusal.as_ref()
    }

    /// Why no settings are told.
    pub(super) fn settings_refusal(&self) -> Option<&Refusal> {
        self.settings_refusal.as_ref()
    }

    /// Whom the connection belongs to.
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
    /// The facts of a server that tells these, and nothing else.
    pub(super) fn told(info: &str, settings: &[(&str, &str)]) -> Self {
        let settings = settings.iter().map(|&(name, value)| (name.to_owned(), value.to_owned()));
        Self { info: fields(info), settings: settings.collect(), ..Self::default() }
    }
}
