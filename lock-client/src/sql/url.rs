//! The settings in the URL of a database.

use crate::service_url::{InvalidUrl, UrlSettings};

/// The settings that a client of a database knows. Spaces separate them.
pub(crate) struct KnownSettings {
    pub(crate) applied: &'static str,
    /// Those that the database's own client documents, and that change neither the target nor what is
    /// verified. They have no effect here.
    pub(crate) without_effect: &'static str,
}

impl KnownSettings {
    /// Returns the URL without the settings that have no effect, and logs them.
    pub(crate) fn without_ineffective(&self, url: &str) -> String {
        let Some((target, query)) = url.split_once('?') else { return url.to_owned() };
        let (query, fragment) = query.split_at(query.find('#').unwrap_or(query.len()));
        let has_effect = |setting: &&str| {
            let name = setting.split('=').next().unwrap_or_default();
            let is_ignored = self.without_effect.split(' ').any(|known| known == name);
            if is_ignored {
                tracing::warn!("the setting `{name}` in the URL of the database has no effect");
            }
            !is_ignored
        };
        let kept: Vec<_> = query.split('&').filter(has_effect).collect();
        let mark = if kept.is_empty() { "" } else { "?" };
        format!("{target}{mark}{}{fragment}", kept.join("&"))
    }

    /// Rejects a URL with a setting that is not applied.
    pub(crate) fn check(&self, url: &str) -> Result<(), InvalidUrl> {
        let query = url.split_once('?').map_or("", |(_, query)| query);
        let settings = UrlSettings::parse(query.split('#').next().unwrap_or_default());
        settings.check_known(&self.applied.split(' ').collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: KnownSettings =
        KnownSettings { applied: "sslmode host", without_effect: "connect_timeout" };

    #[test]
    fn settings_without_effect_are_left_out_and_unknown_ones_rejected() {
        for (url, kept) in [
            ("postgres://h/d", "postgres://h/d"),
            ("postgres://h/d?connect_timeout=3", "postgres://h/d"),
            ("postgres://h/d?connect_timeout=3&sslmode=require", "postgres://h/d?sslmode=require"),
            ("postgres://h/d?host=%2Frun&connect_timeout=3#x", "postgres://h/d?host=%2Frun#x"),
        ] {
            assert_eq!(KNOWN.without_ineffective(url), kept);
            KNOWN.check(kept).unwrap();
        }
        let error = KNOWN.check("postgres://h/d?sslmode=require&sslmod=x").unwrap_err();
        let text = "`sslmod` is no setting here; the settings are sslmode";
        assert!(error.to_string().contains(text), "{error}");
    }
}
