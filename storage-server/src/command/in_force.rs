//! `config`: the options that are in force.

use anyhow::Context;
use clap::{Arg, ArgMatches, Command};
use toml::{Table, Value};
use url::Url;

use super::config_file::settings;
use postgres_primary::DividedUrl;

use crate::store::{ENDPOINT, PUBLIC_PARAMETERS};

const MASK: &str = "***";
/// The parameters of SQLite URLs that sqlx knows.
const SQLITE_PARAMETERS: [&str; 3] = ["cache", "immutable", "mode"];

/// Writes the options in force as a config file. Secrets are masked.
///
/// # Errors
/// If a value is not UTF-8, which TOML can't have.
pub(super) fn in_force(command: &Command, matches: &ArgMatches) -> anyhow::Result<String> {
    let mut table = Table::new();
    for (key, option) in settings(command) {
        if let Some(value) = value(option, matches).with_context(|| format!("--{key}"))? {
            table.insert(key.to_owned(), value);
        }
    }
    Ok(table.to_string())
}

fn value(option: &Arg, matches: &ArgMatches) -> anyhow::Result<Option<Value>> {
    let id = option.get_id().as_str();
    if !option.get_action().takes_values() {
        return Ok(Some(Value::Boolean(matches.get_flag(id))));
    }
    let Some(raw) = matches.get_raw(id).and_then(Iterator::last) else { return Ok(None) };
    let text = raw.to_str().context("the value is not UTF-8")?;
    // An option whose environment value is hidden in the help is a secret here, too.
    let text = if option.is_hide_env_values_set() { masked(text) } else { text.to_owned() };
    let number = text.parse().ok().filter(|number: &i64| number.to_string() == text);
    Ok(Some(number.map_or(Value::String(text), Value::Integer)))
}

/// Masks the password of a URL and each parameter that may be one, or the whole text if it is no URL.
fn masked(text: &str) -> String {
    let Some(divided) = DividedUrl::divide(text).filter(|it| it.hosts().nth(1).is_some()) else {
        return masked_with_one_host(text);
    };
    // A password with a slash and a comma looks like several hosts, up to the slash.
    let is_url = |host: &str| !host.is_empty() && Url::parse(&divided.with_hosts(host)).is_ok();
    if !divided.hosts().all(is_url) || divided.is_ambiguous() {
        return MASK.to_owned();
    }
    let masked = masked_with_one_host(&divided.with_hosts("host"));
    let masked = DividedUrl::divide(&masked).map(|it| it.with_hosts(divided.written_hosts()));
    masked.unwrap_or_else(|| MASK.to_owned())
}

fn masked_with_one_host(text: &str) -> String {
    let Ok(mut url) = Url::parse(text) else { return MASK.to_owned() };
    let is_public = |key: &str, value: &str| {
        PUBLIC_PARAMETERS.contains(&key)
            || SQLITE_PARAMETERS.contains(&key)
            // An endpoint with a user is rejected, but not by then.
            || (key == ENDPOINT && !value.contains('@'))
    };
    let in_query = url.query_pairs().any(|(key, value)| !is_public(&key, &value));
    if url.password().is_none() && !in_query {
        return text.to_owned();
    }
    if url.password().is_some() {
        url.set_password(Some(MASK)).expect("a URL with a password can have another");
    }
    if in_query {
        let pairs: Vec<_> = url.query_pairs().into_owned().collect();
        let masked = pairs
            .iter()
            .map(|(key, value)| (key, if is_public(key, value) { value.as_str() } else { MASK }));
        url.query_pairs_mut().clear().extend_pairs(masked);
    }
    url.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_masked() {
        for (url, shown) in [
            ("postgres://u:p%40ss@h/d?sslmode=require", "postgres://u:***@h/d?sslmode=require"),
            ("postgres://u@h/d?password=p&user=v", "postgres://u@h/d?password=***&user=v"),
            (
                "postgres://u@h/d?sslpassword=p&Password=p&pasword=p&sslkey=k",
                "postgres://u@h/d?sslpassword=***&Password=***&pasword=***&sslkey=k",
            ),
            ("postgres://u@h/d?options=-c%20a%3Dp", "postgres://u@h/d?options=***"),
            ("sqlite:fenced.db?mode=rw", "sqlite:fenced.db?mode=rw"),
            ("s3://b/f?endpoint=http://h:9000", "s3://b/f?endpoint=http://h:9000"),
            ("s3://b/f?endpoint=http://u:p@h", "s3://b/f?endpoint=***"),
            ("postgres://u:p@h/d?password=p", "postgres://u:***@h/d?password=***"),
            ("postgres://u@h:5433/d", "postgres://u@h:5433/d"),
            ("postgres://u:p@a:1,b:2/d?password=p", "postgres://u:***@a:1,b:2/d?password=***"),
            (
                "postgres://u@a:1,[::1]:2/d?target_session_attrs=read-write",
                "postgres://u@a:1,[::1]:2/d?target_session_attrs=read-write",
            ),
            ("postgres://u:p,q@a,b/d", "postgres://u:***@a,b/d"),
            ("postgres://u:1,q/x@a,b/d", MASK),
            ("postgres://u:p,q/x@a/d", MASK),
            ("postgres://u:1,q?x@a/d", MASK),
            ("postgres://u:p@a,,b/d", MASK),
            ("postgres://u:p@h:no-port/d", MASK),
            ("sqlite:a folder/fenced.db", "sqlite:a folder/fenced.db"),
            ("p", MASK),
        ] {
            assert_eq!(masked(url), shown, "{url}");
        }
    }
}
