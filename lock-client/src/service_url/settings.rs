//! The settings of a URL: what follows its `?`.

use super::InvalidUrl;

/// The settings of a URL: `NAME=VALUE`, with `&` between them. They are percent-encoded, and a `+` is
/// a space, as in the URLs of the crates `redis` and `sqlx`. Their names are case-sensitive. A
/// setting that is given twice has its last value.
#[derive(Debug, Default)]
pub(crate) struct UrlSettings(Vec<(String, String)>);

impl UrlSettings {
    pub(crate) fn parse(query: &str) -> Self {
        Self(form_urlencoded::parse(query.as_bytes()).into_owned().collect())
    }

    /// Rejects settings that have none of these names. A setting that is ignored may name another
    /// target, and then two clients hold one lock; or ask for a verification that is not made.
    ///
    /// # Errors
    /// [`InvalidUrl`], which names the known settings. It shows no value.
    pub(crate) fn check_known(&self, known: &[&str]) -> Result<(), InvalidUrl> {
        let mut names = self.0.iter().map(|(name, _)| name.as_str());
        match names.find(|name| !known.contains(name)) {
            None => Ok(()),
            Some(unknown) => Err(InvalidUrl::new(format!(
                "`{unknown}` is no setting here; the settings are {}",
                listed(known)
            ))),
        }
    }

    /// The value of a setting that only this crate knows, so that no other client reads it in another way.
    ///
    /// # Errors
    /// [`InvalidUrl`] if it is given twice.
    pub(crate) fn get_once(&self, name: &str) -> Result<Option<&str>, InvalidUrl> {
        match self.0.iter().filter(|(known, _)| known == name).count() {
            0 | 1 => Ok(self.get(name)),
            _ => Err(InvalidUrl::new(format!("`{name}` is given twice"))),
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let mut settings = self.0.iter().rev();
        settings.find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// Lists names, as in `a, b and c`.
fn listed(names: &[&str]) -> String {
    match names {
        [] => "none".to_owned(),
        [one] => (*one).to_owned(),
        [others @ .., last] => format!("{} and {last}", others.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_decoded_and_the_last_one_counts() {
        let settings = UrlSettings::parse("db=1&tls-ca=%2Fa%20b.pem&d%62=2&empty");
        assert_eq!(settings.get("db"), Some("2"));
        assert_eq!(settings.get("tls-ca"), Some("/a b.pem"));
        assert_eq!(settings.get("empty"), Some(""));
        assert_eq!(settings.get("DB"), None);
        assert!(UrlSettings::parse("").check_known(&[]).is_ok());
    }

    #[test]
    fn unknown_setting_is_rejected_with_the_known_ones() {
        let settings = UrlSettings::parse("db=1&DB=secret");
        let error = settings.check_known(&["db", "tls-ca"]).unwrap_err();
        assert_eq!(error.to_string(), "`DB` is no setting here; the settings are db and tls-ca");
        assert!(settings.check_known(&["db", "DB"]).is_ok());
        assert!(UrlSettings::parse("x").check_known(&[]).is_err());
    }
}
