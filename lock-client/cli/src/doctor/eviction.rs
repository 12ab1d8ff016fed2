//! Whether Redis evicts keys when its memory is full.

use super::{
    facts::Facts,
    finding::{Cure, Finding, Severity},
};

const CHECK: &str = "eviction";

/// Checks which keys Redis evicts.
pub(super) fn eviction(facts: &Facts) -> Finding {
    let value = |field, setting| facts.info(field).or_else(|| facts.setting(setting));
    let Some(policy) = value("maxmemory_policy", "maxmemory-policy") else {
        let rejection = facts.settings_rejection();
        return Finding::unseen(Severity::Unseen, CHECK, "the eviction policy", rejection);
    };
    if policy == "noeviction" {
        return Finding::ok(CHECK, "no key is evicted (maxmemory-policy noeviction)");
    }
    let limit = match value("maxmemory", "maxmemory") {
        Some("0") => "maxmemory is 0, so eviction starts when someone sets a limit".to_owned(),
        Some(limit) => format!("maxmemory {limit} bytes"),
        None => "whether there is a limit could not be seen".to_owned(),
    };
    let found = format!("keys are evicted (maxmemory-policy {policy}; {limit})");
    let cure = Cure::settings(
        "evict nothing: when the memory is full, Redis then rejects grants, and no counter is lost",
        &[("maxmemory-policy", "noeviction")],
    );
    // Counters have no expiry, unless the library keeps them for a limited time.
    if policy.starts_with("volatile-") {
        let endangers = "a lock may be evicted before its ttl ends; its counter stays, unless the \
                         library keeps counters for a limited time only";
        return Finding::bad(Severity::Warning, CHECK, found, endangers, cure);
    }
    let endangers = "a full memory evicts counters: a counter that was set by hand then issues its \
                     tokens again, any other starts at the client's clock; locks are evicted, too";
    Finding::bad(Severity::TokenLoss, CHECK, found, endangers, cure)
}
