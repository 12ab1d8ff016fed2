//! Pages of the list of resources.

use std::ops::Range;

use fence::{ResourceName, Token};

use super::error::UnreadableRow;

/// Which resources to list.
#[derive(Clone, Debug)]
pub struct Page {
    /// Only names that begin with this text.
    pub prefix: String,
    /// Only names after this text.
    pub after: String,
    /// The largest number of resources.
    pub limit: u32,
    /// Only names up to this one.
    pub until: Option<ResourceName>,
}

/// How many names a database looks at for one page. Most resources may have no value, and their names are no part
/// of the page.
pub(super) const NAMES_OF_PAGE: i64 = 4096;

impl Page {
    /// The page up to the last name that may be looked at for it, if there are more. A malformed name, which was
    /// written by hand, is no end: no page can begin after it.
    pub(super) fn until(&self, last: Option<String>) -> Self {
        Self { until: last.and_then(|last| last.try_into().ok()), ..self.clone() }
    }

    /// The page with these resources. If it was not filled, it ends at the last name that was looked at.
    pub(super) fn listing(self, resources: Vec<Listed>) -> Listing {
        let is_filled = resources.len() >= self.limit as usize;
        Listing { resources, unfinished_after: self.until.filter(|_| !is_filled) }
    }

    /// The names of the page are in this range. The database reads no other part of its index, which
    /// an optional bound would not achieve.
    pub(super) fn range(&self) -> Range<String> {
        // No name has control characters, so no other name is between `after` and this.
        let next = format!("{}\u{1}", self.after);
        let start =
            if self.after.is_empty() { self.prefix.clone() } else { next.max(self.prefix.clone()) };
        let end = match &self.until {
            Some(until) => format!("{until}\u{1}"),
            None => end_of_prefix(&self.prefix),
        };
        start..end
    }
}

/// A page of readable rows in the making.
///
/// A page in which rows were left out would look like the last one. So more rows are fetched instead,
/// all at once, because rows of two statements are not of one moment.
pub(super) struct ReadablePage {
    wanted: usize,
    /// How many rows to fetch.
    pub(super) limit: u32,
}

impl ReadablePage {
    pub(super) fn new(page: &Page) -> Self {
        Self { wanted: page.limit as usize, limit: page.limit }
    }

    /// Takes the fetched rows, and returns the page. Returns nothing if more rows must be fetched.
    pub(super) fn take(&mut self, rows: Vec<Result<Listed, UnreadableRow>>) -> Option<Vec<Listed>> {
        let unreadable = rows.iter().filter(|row| row.is_err()).count();
        let is_last = rows.len() < self.limit as usize;
        if is_last || rows.len() - unreadable >= self.wanted {
            let readable = rows.into_iter().filter_map(|row| {
                row.inspect_err(|error| tracing::error!("left out of a list: {error}")).ok()
            });
            return Some(readable.take(self.wanted).collect());
        }
        let unreadable = u32::try_from(unreadable).unwrap_or(u32::MAX);
        self.limit = self.limit.saturating_add(unreadable.saturating_mul(2));
        None
    }
}

/// The lowest text above all names that begin with a prefix.
pub(super) fn end_of_prefix(prefix: &str) -> String {
    let mut chars: Vec<char> = prefix.chars().collect();
    while let Some(last) = chars.pop() {
        if let Some(next) = (last..=char::MAX).nth(1) {
            chars.push(next);
            return chars.into_iter().collect();
        }
    }
    // Above every name, because it is longer than the longest.
    char::MAX.to_string().repeat(ResourceName::MAX_BYTES)
}

/// The resources of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The resources, in the byte order of their names.
    pub resources: Vec<Listed>,
    /// If there was no time for all of the page: the last name that was looked at. The next page begins
    /// after it.
    pub unfinished_after: Option<ResourceName>,
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
    fn end_of_a_prefix_is_the_first_text_after_all_that_have_it() {
        assert_eq!(end_of_prefix("orders/"), "orders0");
        assert_eq!(end_of_prefix("\u{d7ff}"), "\u{e000}");
        assert_eq!(end_of_prefix("a\u{10ffff}"), "b");
        for prefix in ["", "\u{10ffff}"] {
            let longest = char::MAX.to_string().repeat(ResourceName::MAX_BYTES / 4);
            assert!(longest.parse::<ResourceName>().is_ok());
            assert!(end_of_prefix(prefix) > longest);
        }
    }

    #[test]
    fn page_begins_after_the_last_name_of_the_page_before() {
        let start = |prefix: &str, after: &str| {
            Page { prefix: prefix.to_owned(), after: after.to_owned(), limit: 1, until: None }
                .range()
                .start
        };
        assert_eq!(start("", ""), "");
        assert_eq!(start("orders/", ""), "orders/");
        assert_eq!(start("orders/", "invoices"), "orders/");
        assert_eq!(start("orders/", "orders/7"), "orders/7\u{1}");
        assert!("orders/7" < &*start("orders/", "orders/7"));
        assert!(&*start("orders/", "orders/7") < "orders/7 ");
    }
}
