//! Pages of the list of resources.

use fence::{ResourceName, Token};

/// Which resources to list.
#[derive(Clone, Debug)]
pub struct Page {
    /// Only names that begin with this text.
    pub prefix: String,
    /// Only names after this text.
    pub after: String,
    /// The largest number of resources.
    pub limit: u32,
}

impl Page {
    /// The lowest text above all names that begin with the prefix; `None` if there is no such text.
    /// With it, the database reads a range of its index.
    pub(super) fn prefix_end(&self) -> Option<String> {
        let mut chars: Vec<char> = self.prefix.chars().collect();
        while let Some(last) = chars.pop() {
            if let Some(next) = (last..=char::MAX).nth(1) {
                chars.push(next);
                return Some(chars.into_iter().collect());
            }
        }
        None
    }
}

/// A resource in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The resource's name.
    pub resource: ResourceName,
    /// The token that the value was written with.
    pub token: Option<Token>,
    /// The resource's version.
    pub version: u64,
    /// The value's size in bytes.
    pub size: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_end_is_the_first_text_after_all_that_have_the_prefix() {
        let end = |prefix: &str| {
            Page { prefix: prefix.to_owned(), after: String::new(), limit: 1 }.prefix_end()
        };
        assert_eq!(end(""), None);
        assert_eq!(end("orders/").as_deref(), Some("orders0"));
        assert_eq!(end("\u{d7ff}").as_deref(), Some("\u{e000}"));
        assert_eq!(end("a\u{10ffff}").as_deref(), Some("b"));
        assert_eq!(end("\u{10ffff}"), None);
    }
}
