//! The statements of each request. Each is one transaction, which holds the only write lock of the
//! file from its beginning, and which answers with one row.
//!
//! The values are arguments, so that each connection parses and plans the statements once. That takes
//! several times as long as to carry them out.

use crate::{
    backend::Ownership,
    clock::unix_millis,
    sql::{backend::Request, line::Statements},
    terms::{Order, QUEUE_PATIENCE},
};

/// The time in milliseconds of Unix time. It is taken anew for each statement.
const NOW: &str = "cast((julianday('now') - 2440587.5) * 86400000 as integer)";

pub(super) fn statements(request: Request<'_>, label: &str) -> Statements {
    match request {
        Request::Acquire(name, holder, ttl, order) => {
            let numbers = [ttl.as_millis(), unix_millis()].map(|number| number.to_string());
            with(acquire(order), [name.as_str(), holder.as_str(), &numbers[0], &numbers[1], label])
        }
        Request::Renew(name, Ownership { holder, grant }, ttl) => {
            let numbers = [grant.as_u64(), ttl.as_millis()].map(|number| number.to_string());
            with(renew(), [name.as_str(), holder.as_str(), &numbers[0], &numbers[1]])
        }
        Request::Reissue(name, Ownership { holder, grant }, above) => {
            let numbers = [grant, &above].map(|number| number.to_string());
            with(reissue(), [name.as_str(), holder.as_str(), &numbers[0], &numbers[1]])
        }
        Request::Release(name, holder) => with(release(), [name.as_str(), holder.as_str()]),
        Request::Status(name) => with(status(), [name.as_str()]),
        Request::HeldNames(prefix, after) => with(held_names(after), [prefix]),
    }
}

/// Adds the values of `?1`, `?2` and so on.
fn with<const COUNT: usize>(sql: String, arguments: [&str; COUNT]) -> Statements {
    Statements { sql, arguments: arguments.map(str::to_owned).into() }
}

/// Grants the lock with the next token, if it is free and no other holder is before this one in the
/// queue. A holder that has the lock already gets the same token again, and the full ttl.
fn acquire(order: Order) -> String {
    let patience_ms = QUEUE_PATIENCE.as_millis();
    // A waiter shows in time that it is alive.
    let nap_ms = patience_ms / 3;
    let alive = format!("name = ?1 and alive_until_ms > {NOW}");
    let own = format!("name = ?1 and holder = ?2 and expires_at_ms > {NOW}");
    let enqueue = match order {
        Order::Unordered => String::new(),
        Order::Fair => format!(
            "insert into fenced_lock_queue (name, holder, alive_until_ms)
            select ?1, ?2, {NOW} + {patience_ms}
            where not exists (select 1 from fenced_lock where {own})
            on conflict (name, holder) do update set alive_until_ms = excluded.alive_until_ms;"
        ),
    };
    format!(
        "begin immediate;
        -- A retry after a lost reply.
        update fenced_lock set expires_at_ms = {NOW} + cast(?3 as integer) where {own};
        insert into fenced_lock (name, token, granted, holder, expires_at_ms, since_ms, label)
        select ?1, cast(?4 as integer) + 1, cast(?4 as integer) + 1, ?2,
            {NOW} + cast(?3 as integer), cast(?4 as integer), ?5
        where ?2 = coalesce(
            (select holder from fenced_lock_queue where {alive} order by place limit 1), ?2)
        on conflict (name) do update
        set token = token + 1, granted = token + 1, holder = excluded.holder,
            expires_at_ms = excluded.expires_at_ms, since_ms = excluded.since_ms,
            label = excluded.label
        where fenced_lock.holder is null or fenced_lock.expires_at_ms <= {NOW};
        -- An owner leaves the queue, and so do the dead.
        delete from fenced_lock_queue
        where name = ?1 and (
            alive_until_ms <= {NOW}
            or holder = ?2 and exists (select 1 from fenced_lock where {own}));
        {enqueue}
        select token, granted, remaining_ms, ahead, min({nap_ms}, remaining_ms + 1) as nap_ms
        from (
            select
                (select token from fenced_lock where {own}) as token,
                (select granted from fenced_lock where {own}) as granted,
                max(0, coalesce(
                    (select expires_at_ms from fenced_lock
                        where name = ?1 and holder is not null and expires_at_ms > {NOW}),
                    (select alive_until_ms from fenced_lock_queue where {alive}
                        order by place limit 1),
                    0) - {NOW}) as remaining_ms,
                (select (
                        select count(*) from fenced_lock_queue where {alive} and place < own.place)
                    from fenced_lock_queue own
                    where own.name = ?1 and own.holder = ?2) as ahead);
        commit"
    )
}

/// Sets the full ttl if the lock is still this ownership's, and returns its token.
fn renew() -> String {
    let own = ownership();
    format!(
        "begin immediate;
        update fenced_lock set expires_at_ms = {NOW} + cast(?4 as integer) where {own};
        select (select token from fenced_lock where {own}) as token;
        commit"
    )
}

/// Swaps the token for one above `?4` and above itself, if the lock is still this ownership's, and
/// returns it.
fn reissue() -> String {
    let own = ownership();
    format!(
        "begin immediate;
        update fenced_lock set token = max(token, cast(?4 as integer)) + 1 where {own};
        select (select token from fenced_lock where {own}) as token;
        commit"
    )
}

/// Empties the row if the holder holds the lock, and removes the holder from the queue. Returns
/// whether the holder held the lock, and with what the first waiter's holder begins.
fn release() -> String {
    format!(
        "begin immediate;
        select
            exists (select 1 from fenced_lock
                where name = ?1 and holder = ?2 and expires_at_ms > {NOW}) as released,
            (select substr(holder, 1, 8) from fenced_lock_queue
                where name = ?1 and holder <> ?2 and alive_until_ms > {NOW}
                order by place limit 1) as first_waiter;
        update fenced_lock
        set holder = null, granted = null, expires_at_ms = null, since_ms = null, label = ''
        where name = ?1 and holder = ?2;
        delete from fenced_lock_queue where name = ?1 and holder = ?2;
        commit"
    )
}

/// Returns the state of the lock and the number of its fair waiters.
fn status() -> String {
    format!(
        "select l.token, held.holder, held.granted, held.since_ms, held.label,
            held.expires_at_ms - {NOW} as remaining_ms,
            (select count(*) from fenced_lock_queue
                where name = ?1 and alive_until_ms > {NOW}) as queued
        from (select ?1 as name) as wanted
        left join fenced_lock l on l.name = wanted.name
        left join fenced_lock held
            on held.name = wanted.name and held.holder is not null and held.expires_at_ms > {NOW}"
    )
}

/// Returns the names of up to 100 locks that are held, whose names have this prefix and follow `after`,
/// in their order; null if there are none. Each is on a line of its own, and `after` is like them, in
/// hexadecimal digits.
fn held_names(after: &str) -> String {
    format!(
        "select group_concat(hex(name), char(10)) as names
        from (
            select name from fenced_lock
            where name > cast(x'{after}' as text) and name >= ?1
                and substr(name, 1, length(?1)) = ?1
                and holder is not null and expires_at_ms > {NOW}
            order by name limit 100)"
    )
}

/// The condition that the lock is still that of the first three arguments.
fn ownership() -> String {
    format!("name = ?1 and holder = ?2 and granted = cast(?3 as integer) and expires_at_ms > {NOW}")
}
