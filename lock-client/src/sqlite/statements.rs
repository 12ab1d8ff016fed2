//! The statements of each request. Each is one transaction, which holds the only write lock of the
//! file from its beginning, and which answers with one row.

use fence::{Holder, ResourceName, Token};

use crate::{sql::hex, terms::Order, ttl::Ttl};

/// The time in milliseconds of Unix time. It is taken anew for each statement.
const NOW: &str = "cast((julianday('now') - 2440587.5) * 86400000 as integer)";
/// How many milliseconds a waiter in the queue may sleep.
const NAP_MS: u64 = 1_000;
/// How many milliseconds a waiter has to show that it is alive.
const PATIENCE_MS: u64 = 3_000;

/// Grants the lock with the next token, if it is free and no other holder is before this one in the
/// queue. A holder that has the lock already gets the same token again, and the full ttl.
pub(super) fn acquire(
    name: &ResourceName,
    holder: &Holder,
    ttl: Ttl,
    order: Order,
    since_ms: u64,
    label: &str,
) -> String {
    let (name, holder) = (text(name.as_str()), text(holder.as_str()));
    let (ttl_ms, label) = (ttl.as_millis(), text(label));
    let own = format!("name = {name} and holder = {holder} and expires_at_ms > {NOW}");
    let alive = format!("name = {name} and alive_until_ms > {NOW}");
    let enqueue = match order {
        Order::Unordered => String::new(),
        Order::Fair => format!(
            "insert into fenced_lock_queue (name, holder, alive_until_ms)
            select {name}, {holder}, {NOW} + {PATIENCE_MS}
            where not exists (select 1 from fenced_lock where {own})
            on conflict (name, holder) do update set alive_until_ms = excluded.alive_until_ms;"
        ),
    };
    format!(
        "begin immediate;
        -- A retry after a lost reply.
        update fenced_lock set expires_at_ms = {NOW} + {ttl_ms} where {own};
        insert into fenced_lock (name, token, granted, holder, expires_at_ms, since_ms, label)
        select {name}, {since_ms} + 1, {since_ms} + 1, {holder}, {NOW} + {ttl_ms}, {since_ms}, {label}
        where {holder} = coalesce(
            (select holder from fenced_lock_queue where {alive} order by place limit 1), {holder})
        on conflict (name) do update
        set token = token + 1, granted = token + 1, holder = excluded.holder,
            expires_at_ms = excluded.expires_at_ms, since_ms = excluded.since_ms,
            label = excluded.label
        where fenced_lock.holder is null or fenced_lock.expires_at_ms <= {NOW};
        -- An owner leaves the queue, and so do the dead.
        delete from fenced_lock_queue
        where name = {name} and (
            alive_until_ms <= {NOW}
            or holder = {holder} and exists (select 1 from fenced_lock where {own}));
        {enqueue}
        select token, granted, remaining_ms, ahead, min({NAP_MS}, remaining_ms + 1) as nap_ms
        from (
            select
                (select token from fenced_lock where {own}) as token,
                (select granted from fenced_lock where {own}) as granted,
                max(0, coalesce(
                    (select expires_at_ms from fenced_lock
                        where name = {name} and holder is not null and expires_at_ms > {NOW}),
                    (select alive_until_ms from fenced_lock_queue where {alive}
                        order by place limit 1),
                    0) - {NOW}) as remaining_ms,
                (select (
                        select count(*) from fenced_lock_queue where {alive} and place < own.place)
                    from fenced_lock_queue own
                    where own.name = {name} and own.holder = {holder}) as ahead);
        commit"
    )
}

/// Sets the full ttl if the lock is still this ownership's, and returns its token.
pub(super) fn renew(name: &ResourceName, holder: &Holder, grant: Token, ttl: Ttl) -> String {
    let (own, ttl_ms) = (ownership(name, holder, grant), ttl.as_millis());
    format!(
        "begin immediate;
        update fenced_lock set expires_at_ms = {NOW} + {ttl_ms} where {own};
        select (select token from fenced_lock where {own}) as token;
        commit"
    )
}

/// Swaps the token for one above `above` and above itself, if the lock is still this ownership's, and
/// returns it.
pub(super) fn reissue(name: &ResourceName, holder: &Holder, grant: Token, above: Token) -> String {
    let own = ownership(name, holder, grant);
    format!(
        "begin immediate;
        update fenced_lock set token = max(token, {above}) + 1 where {own};
        select (select token from fenced_lock where {own}) as token;
        commit"
    )
}

/// Empties the row if the holder holds the lock, and removes the holder from the queue. Returns
/// whether the holder held the lock, and with what the first waiter's holder begins.
pub(super) fn release(name: &ResourceName, holder: &Holder) -> String {
    let (name, holder) = (text(name.as_str()), text(holder.as_str()));
    let own = format!("name = {name} and holder = {holder} and expires_at_ms > {NOW}");
    format!(
        "begin immediate;
        select exists (select 1 from fenced_lock where {own}) as released,
            (select substr(holder, 1, 8) from fenced_lock_queue
                where name = {name} and holder <> {holder} and alive_until_ms > {NOW}
                order by place limit 1) as first_waiter;
        update fenced_lock
        set holder = null, granted = null, expires_at_ms = null, since_ms = null, label = ''
        where name = {name} and holder = {holder};
        delete from fenced_lock_queue where name = {name} and holder = {holder};
        commit"
    )
}

/// Returns the state of the lock and the number of its fair waiters.
pub(super) fn status(name: &ResourceName) -> String {
    let name = text(name.as_str());
    format!(
        "select l.token, held.holder, held.granted, held.since_ms, held.label,
            held.expires_at_ms - {NOW} as remaining_ms,
            (select count(*) from fenced_lock_queue
                where name = {name} and alive_until_ms > {NOW}) as queued
        from (select {name} as name) as wanted
        left join fenced_lock l on l.name = wanted.name
        left join fenced_lock held
            on held.name = wanted.name and held.holder is not null and held.expires_at_ms > {NOW}"
    )
}

/// Returns the names of up to 100 locks that are held, whose names have this prefix and follow `after`,
/// in their order; null if there are none. Each is on a line of its own, and `after` is like them, in
/// hexadecimal digits.
pub(super) fn held_names(prefix: &str, after: &str) -> String {
    let prefix = text(prefix);
    format!(
        "select group_concat(hex(name), char(10)) as names
        from (
            select name from fenced_lock
            where name > cast(x'{after}' as text) and name >= {prefix}
                and substr(name, 1, length({prefix})) = {prefix}
                and holder is not null and expires_at_ms > {NOW}
            order by name limit 100)"
    )
}

fn ownership(name: &ResourceName, holder: &Holder, grant: Token) -> String {
    let (name, holder) = (text(name.as_str()), text(holder.as_str()));
    format!("name = {name} and holder = {holder} and granted = {grant} and expires_at_ms > {NOW}")
}

/// Returns a text as an SQL expression.
fn text(text: &str) -> String {
    format!("cast(x'{}' as text)", hex(text))
}
