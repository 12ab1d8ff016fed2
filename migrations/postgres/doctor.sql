-- Examines a PostgreSQL: which settings the fence, the locks and the storage server need, and which of them are wrong.
--
--     psql mydatabase --file doctor.sql
--
-- Each row is a check: doctor/README.md says what the verdicts mean. Nothing need be installed, and nothing is changed.
-- It begins and ends a transaction of its own.
-- Only members of pg_read_all_stats, such as pg_monitor, see the state of standbys. Every command named `doctor` sends
-- this file.

begin read only;
set local search_path = pg_catalog, pg_temp;

with names as (select current_setting('synchronous_standby_names') as value),
-- Settings of synchronous_commit that a role, a database or a function has stored.
stored (place, value) as (
    select concat_ws(' in ',
            case setrole when 0 then 'all roles' else 'role ' || setrole::regrole end,
            case setdatabase when 0 then 'all databases' else 'database '
                || (select quote_ident(datname) from pg_database d where d.oid = setdatabase) end),
        setting
    from pg_db_role_setting cross join lateral unnest(setconfig) as setting
    where setdatabase in (0, (select oid from pg_database where datname = current_database()))
    union all
    select 'function ' || oid::regprocedure, setting
    from pg_proc cross join lateral unnest(proconfig) as setting
),
weaker as (
    select string_agg(format('%s: %s', place, level.value), ', ' order by place) as list
    from stored
    cross join names
    cross join lateral (select lower(substr(stored.value, length('synchronous_commit=') + 1))) as level (value)
    where starts_with(lower(stored.value), 'synchronous_commit=')
        and level.value not in ('on', 'remote_apply', 'true', 'yes', '1')
        -- Without synchronous standbys, these levels wait for the disk, too.
        and (level.value not in ('local', 'remote_write') or names.value <> '')
),
-- Connections of standbys, not of logical replication or backups. Without rights, all that is seen of a connection
-- is that it exists.
standby as (
    select r.state is null as is_hidden, r.sync_state,
        format('%s (%s)', coalesce(nullif(r.application_name, ''), r.pid::text), r.sync_state) as title
    from pg_stat_replication r
    where r.state is distinct from 'backup'
        and not exists (select from pg_replication_slots where active_pid = r.pid and slot_type = 'logical')
),
standbys as (
    select count(*) as number,
        count(*) filter (where is_hidden) as hidden,
        count(*) filter (where sync_state in ('async', 'potential')) as asynchronous,
        count(*) filter (where sync_state = 'quorum') as in_quorum,
        string_agg(title, ', ' order by title) filter (where not is_hidden) as list
    from standby
),
patroni (is_there) as (select exists (select from pg_stat_activity where application_name ~ '^Patroni( |$)')),
-- The tables of the fence, the locks and the storage server. Only the queue of the locks may be lost.
tables as (
    select string_agg(title, ', ' order by title) as list,
        string_agg(title, ', ' order by title) filter (where relpersistence <> 'p') as unlogged
    from pg_class c join pg_namespace n on n.oid = c.relnamespace
    cross join lateral (select format('%s.%s', nspname, relname)) as name (title)
    where relkind = 'r' and (nspname in ('fence', 'storage') or title = 'fenced_lock.lock')
),
unlogged_protected as (
    select string_agg(t.tgrelid::regclass::text, ', ' order by t.tgrelid::regclass::text) as list
    from pg_trigger t join pg_class c on c.oid = t.tgrelid
    where t.tgname = 'fence_rows' and c.relpersistence <> 'p'
),
checks (name, verdict, found, why, cure) as (
    select 'primary', case when pg_is_in_recovery() then 'unfit' else 'ok' end,
        case when pg_is_in_recovery() then 'a standby' else 'a primary' end,
        'a standby takes no claim and no lock, and may lack the latest ones', 'connect to the primary'
    union all
    select name, case setting when 'on' then 'ok' else 'unfit-for-fence' end, setting,
        case name when 'fsync' then 'a power loss or a crash of the system loses committed fences and grants'
            else 'a crash may leave torn pages, unless the file system prevents them' end,
        format('alter system set %s = on; select pg_reload_conf()', name)
    from pg_settings where name in ('fsync', 'full_page_writes')
    union all
    select name, case
            when setting = 'off' or names.value <> '' and setting not in ('on', 'remote_apply')
                then 'unfit-for-fence'
            -- It hides what other sessions have.
            when source not in (
                'default', 'environment variable', 'command line', 'configuration file', 'global',
                'database') then 'unseen'
            else 'ok'
        end,
        format('%s, set by: %s', setting, source),
        'a commit must wait for the disk, and for the disk of each synchronous standby: what a session, a '
            'role or a URL sets says nothing of other sessions',
        'set it to on or remote_apply for the server, examine with a session that doesn''t set it, and let '
            'no session set a weaker one for itself'
    from pg_settings cross join names where name = 'synchronous_commit'
    union all
    select 'stored_synchronous_commit', case when list is null then 'ok' else 'unfit-for-fence' end,
        coalesce(list, 'none is weaker'),
        'the commits of these roles, databases and functions don''t wait for the disk',
        'reset it where it is stored'
    from weaker
    union all
    select 'table', case when unlogged is null then 'ok' else 'unfit-for-fence' end,
        coalesce('unlogged: ' || unlogged, 'logged: ' || list, 'there is none yet'),
        'a crash empties an unlogged table, and standbys don''t have it', 'alter table ... set logged'
    from tables
    union all
    select 'protected_tables', case when list is null then 'ok' else 'unfit-for-fence' end,
        coalesce('unlogged: ' || list, 'all are logged'),
        'a crash empties an unlogged table: its fences stay, but what they protected is gone',
        'alter table ... set logged'
    from unlogged_protected
    union all
    select 'synchronous_standby_names', case
            when names.value <> '' or number = 0 then 'ok'
            -- All connections are hidden, and may be of logical replication.
            when hidden = number then 'unseen'
            else 'unfit-for-fence'
        end,
        case names.value when '' then 'empty' else names.value end,
        'no commit waits for a standby: if one is promoted, acknowledged fences and writes are lost with the '
            'primary, and older tokens are accepted again',
        'name each standby that may be promoted, as with FIRST 2 (a, b), and promote no other'
    from names cross join standbys
    union all
    select 'hidden_standbys', case hidden when 0 then 'ok' else 'unseen' end,
        case hidden when 0 then 'none' else format('%s of %s', hidden, number) end,
        'this role sees only that they are connected', 'examine as a member of pg_read_all_stats'
    from standbys
    union all
    select 'standbys', case
            when number = hidden then 'ok'
            when names.value = '' then 'unfit-for-fence'
            -- Of a quorum, only the most advanced one is sure to have everything.
            when asynchronous = 0 and in_quorum <= 1 then 'ok'
            when asynchronous = 0 or patroni.is_there then 'unseen'
            else 'unfit-for-fence'
        end,
        coalesce(list, 'none is seen'),
        'one that is asynchronous, or in a quorum with others, may lack the latest fences and grants; which '
            'one is promoted, only what promotes it knows',
        'name each standby that may be promoted in synchronous_standby_names, as with FIRST 2 (a, b), and '
            'promote no other'
    from names cross join standbys cross join patroni
    union all
    select 'patroni', 'unseen', 'it has a session',
        'without synchronous_mode, Patroni may promote a standby that lacks the last commits; without '
            'synchronous_mode_strict, commits wait for no standby once none is left; SQL shows neither',
        'make sure that synchronous_mode and synchronous_mode_strict are on'
    from patroni where is_there
    union all
    select 'unseen', 'unseen', 'not visible to SQL',
        'whether the disk keeps what was synced; standbys that are not connected now, and their own '
            'settings, such as fsync; who may be promoted, and whether the old primary is stopped first; '
            'what other sessions set; a restored backup',
        null
)
select name, verdict, found, case when verdict <> 'ok' then why end as why,
    case when verdict <> 'ok' then cure end as cure
from checks;

commit;
