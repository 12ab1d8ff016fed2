//! Whether Redis removes keys when its memory is full.

use super::{
    facts::Facts,
    finding::{Cure, Finding, Severity},
};

const CHECK: &str = "eviction";

/// Looks at which keys Redis removes when its memory is full.
pub(super) fn eviction(facts: &Facts) -> Finding {
    let told = |field, setting| facts.info(field).or_else(|| facts.setting(setting));
    let Some(policy) = told("maxmemory_policy", "maxmemory-policy") else {
        return Finding::unseen(
            Severity::Unseen,
            CHECK,
            "the eviction policy",
            facts.settings_refusal(),
        );
    };
    if policy == "noeviction" {
        return Finding::ok(CHECK, "no key is evicted (maxmemory-policy noeviction)");
    }
    let limit = match told("maxmemory", "maxmemory") {
        Some("0") => "maxmemory is 0, so it begins when somebody sets a limit".to_owned(),
        Some(limit) => format!("maxmemory {limit} bytes"),
        None => "whether there is a limit could not be seen".to_owned(),
    };
    let found = format!("keys are evicted (maxmemory-policy {policy}; {limit})");
    let cure = Cure::settings(
        "evict nothing: when the memory is full, grants are then refused, and no counter is lost",
        &[("maxmemory-policy", "noeviction")],
    );
    // Counters have no expiry, unless they are kept for a while only.
    if policy.starts_with("volatile-") {
        let endangers = "a lock may be taken from its holder before its ttl is over; its counter \
                         stays, unless the library was told to keep counters for a while only";
        return Finding::bad(Severity::Warning, CHECK, found, endangers, cure);
    }
    let endangers = "a full memory evicts counters: one that was set by hand issues its tokens again, \
                     any other starts at the client's clock; locks are evicted, too";
    Finding::bad(Severity::TokenLoss, CHECK, found, endangers, cure)
}
