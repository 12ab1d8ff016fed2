//! The names of the locks that etcd holds.

use futures_util::stream::try_unfold;

use super::{
    client::Etcd,
    keys::{self, Keys},
    messages::{Range, RangeReply, Text},
};
use crate::backend::HeldNames;

/// How many keys a page is read from. One lock has a key for its owner and for each waiter.
const PAGE: usize = 500;

/// Reads the keys in their order, from the first that a name with this prefix may have.
pub(super) fn held(etcd: Etcd, prefix: &str) -> HeldNames {
    let prefix = keys::prefix_of_names(prefix);
    Box::pin(try_unfold(Some(prefix.clone()), move |next| {
        let (etcd, prefix) = (etcd.clone(), prefix.clone());
        async move {
            let Some(next) = next else { return Ok(None) };
            let range = Range {
                range_end: Some(Text(keys::END.to_owned())),
                limit: PAGE as i64,
                sort_target: "KEY",
                ..Range::one(next)
            };
            let read: RangeReply = etcd.connection.call("kv/range", &range).await?;
            let keys: Vec<_> = read.kvs.iter().map(|key| key.key.0.as_str()).collect();
            let with_prefix = keys.iter().take_while(|key| key.starts_with(&prefix)).count();
            let mut names: Vec<_> =
                keys[..with_prefix].iter().filter_map(|key| keys::name_in_queue(key)).collect();
            names.dedup();
            // A long queue is left out.
            let next = keys.last().filter(|_| with_prefix == PAGE).map(|last| {
                keys::name_in_queue(last)
                    .map_or_else(|| format!("{last}\0"), |name| Keys::new(&name).queue_end())
            });
            Ok(Some((names, next)))
        }
    }))
}
