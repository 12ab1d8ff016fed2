//! What an ETag follows.

use std::borrow::Cow;

use object_store::{Attribute, Attributes, ObjectStore, PutOptions};

use super::{fit_if, site::Site};
use crate::check::Check;

const WHY: &str = "without an ETag, there is no condition that an object still is as it was read";

/// Writes the same content twice, with different metadata.
pub(super) async fn check(site: &Site) -> anyhow::Result<Check> {
    let path = site.path("etag");
    let mut e_tags = Vec::new();
    for token in ["33", "34"] {
        let metadata = Attribute::Metadata(Cow::Borrowed("token"));
        let attributes = Attributes::from_iter([(metadata, token)]);
        let options = PutOptions { attributes, ..PutOptions::default() };
        e_tags.push(site.store.put_opts(&path, "content".into(), options).await?.e_tag);
    }
    let (is_fit, found) = match (&e_tags[0], &e_tags[1]) {
        (None, _) | (_, None) => (false, "there is none"),
        (first, second) if first == second => {
            (true, "follows the content alone: a token in the metadata would be no fence")
        }
        _ => (true, "changes with each write"),
    };
    Ok(fit_if(is_fit, "etag", found, WHY))
}
