//! The settings at the end of a URL, after its `?`.

/// The settings at the end of a URL. Names and values are percent-encoded.
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    pub(super) fn parse(query: &str) -> Self {
        // The `redis` crate decodes it.
        let url = redis::parse_redis_url(&format!("redis://host/?{query}"));
        let pairs = url.iter().flat_map(|url| url.query_pairs());
        Self(pairs.map(|(name, value)| (name.into_owned(), value.into_owned())).collect())
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns a setting that has none of these names.
    #[cfg(any(feature = "cluster", feature = "sentinel"))]
    pub(super) fn other_than(&self, names: &[&str]) -> Option<&str> {
        self.0.iter().map(|(name, _)| name.as_str()).find(|name| !names.contains(name))
    }
}
