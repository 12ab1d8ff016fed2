-- Locks that hand out fencing tokens, inside MariaDB, 10.5 or newer. Apply 0002_procedures.sql next.
-- May be applied again.
--
--     mariadb --delimiter=// DATABASE < 0001_lock.sql
--
-- The names have a prefix, because the tables live in a database of the application.

-- The locks. A row is never deleted, and its token never falls. Names are compared byte by byte.
-- Times are in milliseconds of Unix time, by the database's clock.
create table if not exists fenced_lock (
    name varbinary(512) not null primary key,
    -- The last token issued.
    token bigint not null check (token between 0 and 999999999999999),
    -- The token with which the present lock was granted. A reissue does not change it.
    granted bigint,
    -- The owner; null if the lock was released.
    holder varbinary(128),
    expires_at_ms bigint,
    -- The time of the grant by the client's clock.
    since_ms bigint,
    label varchar(200) character set utf8mb4 not null default '',
    check (
        holder is null
        or granted is not null and expires_at_ms is not null and since_ms is not null)
) engine = InnoDB;

-- The waiters in the fair order.
create table if not exists fenced_lock_queue (
    place bigint not null auto_increment primary key,
    name varbinary(512) not null,
    holder varbinary(128) not null,
    -- Each try of a waiter postpones this time. A waiter past it is dead.
    alive_until_ms bigint not null,
    unique key waiter (name, holder),
    key places (name, place)
) engine = InnoDB;
