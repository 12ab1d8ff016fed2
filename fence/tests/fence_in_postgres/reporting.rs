//! A table in the mode `report` rejects nothing, and says what it would have rejected.

use super::{
    NO_PRIVILEGE, STALE, TOKEN_REQUIRED, TRUNCATE_REJECTED, accounts, attempt,
    attempt_and_roll_back, is_true, number, roles::WRITER, session, session_of,
};

const REPORT: &str = "select fence.protect('accounts', 'account_id', mode => 'report')";
const UPDATE: &str = "update accounts set balance = balance + 1 where account_id = 'alice'";

#[tokio::test]
async fn what_would_be_rejected_passes_and_is_recorded() {
    let (_server, mut owner) = accounts().await;
    attempt(&mut owner, REPORT).await.unwrap();
    for (write, code, resource) in [
        (UPDATE, TOKEN_REQUIRED, "alice"),
        ("delete from accounts where account_id = 'bob'", TOKEN_REQUIRED, "bob"),
        ("select fence.present(33, 'a'); update accounts set balance = 7", STALE, "alice"),
        ("select fence.present(34, 'b'); update accounts set balance = 7", "ZF002", "alice"),
        ("select fence.present(34, 'a'); insert into accounts values ('')", "ZF003", ""),
        ("truncate accounts", TRUNCATE_REJECTED, ""),
    ] {
        attempt(&mut owner, "delete from fence.reports").await.unwrap();
        // Otherwise this session would not report the same twice within a minute.
        attempt(&mut owner, "discard all").await.unwrap();
        attempt(&mut owner, &format!("begin; {write}; commit")).await.expect(write);
        let recorded = format!(
            "select count(*) from fence.reports
             where relation = 'public.accounts' and code = '{code}' and role = 'postgres'
                and (detail = '' or detail::json ->> 'resource' = '{resource}')"
        );
        assert_eq!(number(&mut owner, &recorded).await, 1, "{write}");
        assert_eq!(number(&mut owner, "select count(*) from fence.reports").await, 1, "{write}");
    }
}

/// A record has at most 512 characters of a name.
#[tokio::test]
async fn name_that_is_too_long_makes_a_short_report() {
    let (_server, mut owner) = accounts().await;
    let setup = "create table notes (note text); select fence.protect('notes', 'note', 'report')";
    attempt(&mut owner, setup).await.unwrap();
    attempt(&mut owner, "insert into notes values (repeat('é', 1000000))").await.unwrap();
    let length = "select max(octet_length(message || detail))::bigint from fence.reports";
    let length = number(&mut owner, length).await;
    assert!((1000..1200).contains(&length), "{length}");
}

#[tokio::test]
async fn valid_writes_are_not_recorded_and_raise_the_fence() {
    let (_server, mut owner) = accounts().await;
    attempt(&mut owner, REPORT).await.unwrap();
    for valid in [
        "select fence.claim('alice', 34, 'a'); ",
        "select fence.present(34, 'a'); ",
        "select fence.present(35, 'c'); ",
    ] {
        attempt(&mut owner, &format!("{valid}{UPDATE}")).await.unwrap();
    }
    assert_eq!(number(&mut owner, "select count(*) from fence.reports").await, 0);
    assert_eq!(number(&mut owner, "select token from fence.fences").await, 35);
    // A claim is rejected as ever: only writes are let through.
    let stale = "select fence.claim('alice', 34, 'a')";
    assert_eq!(attempt(&mut owner, stale).await.unwrap_err(), STALE);
}

#[tokio::test]
async fn enforcing_rejects_what_was_reported() {
    let (_server, mut owner) = accounts().await;
    attempt(&mut owner, REPORT).await.unwrap();
    let status = "select mode = 'report' and problem is null from fence.status";
    assert!(is_true(&mut owner, status).await);
    attempt(&mut owner, UPDATE).await.unwrap();
    attempt(&mut owner, "select fence.protect('accounts', 'account_id')").await.unwrap();
    assert_eq!(attempt(&mut owner, UPDATE).await.unwrap_err(), TOKEN_REQUIRED);
    assert_eq!(attempt(&mut owner, "truncate accounts").await.unwrap_err(), TRUNCATE_REJECTED);
    let status = "select mode = 'enforce' and problem is null from fence.status";
    assert!(is_true(&mut owner, status).await);
    for (wrong, code) in [
        ("select fence.protect('accounts', 'account_id', 'warn')", "22023"),
        ("select fence.protect('accounts', 'account_id', null)", "22023"),
    ] {
        assert_eq!(attempt(&mut owner, wrong).await.unwrap_err(), code, "{wrong}");
    }
}

/// The programs that are there before the fence have no rights on it.
#[tokio::test]
async fn role_without_rights_on_the_fence_passes() {
    let (server, mut owner) = accounts().await;
    attempt(&mut owner, "create role stranger login; grant all on accounts to stranger")
        .await
        .unwrap();
    let mut stranger = session_of(&server, "stranger").await;
    // The negative control.
    assert_eq!(attempt(&mut stranger, UPDATE).await.unwrap_err(), NO_PRIVILEGE);

    attempt(&mut owner, REPORT).await.unwrap();
    let mut stranger = session_of(&server, "stranger").await;
    attempt(&mut stranger, &format!("set application_name = 'billing'; {UPDATE}")).await.unwrap();
    attempt(&mut stranger, "truncate accounts").await.unwrap();
    let recorded = "
        select count(*) from fence.reports where role = 'stranger' and application = 'billing'";
    assert_eq!(number(&mut owner, recorded).await, 2);
}

/// Neither a column that is gone, nor a failing report.
#[tokio::test]
async fn nothing_that_goes_wrong_in_the_check_rejects() {
    let (_server, mut owner) = accounts().await;
    let rename = format!("{REPORT}; alter table accounts rename account_id to id");
    attempt(&mut owner, &rename).await.unwrap();
    attempt(&mut owner, "update accounts set balance = 0 where id = 'bob'").await.unwrap();
    let recorded = "select count(*) from fence.reports where code = '42703'";
    assert_eq!(number(&mut owner, recorded).await, 1);
    // The negative control.
    let enforce =
        "select fence.protect('accounts', 'id'); alter table accounts rename id to account_id";
    attempt(&mut owner, enforce).await.unwrap();
    assert_eq!(attempt(&mut owner, UPDATE).await.unwrap_err(), "42703");

    let gone = "alter function fence.report(regclass, text, text, text) rename to gone";
    attempt(&mut owner, &format!("{REPORT}; {gone}")).await.unwrap();
    attempt(&mut owner, UPDATE).await.unwrap();
}

#[tokio::test]
async fn reports_are_limited_and_make_nobody_wait() {
    let (server, mut owner) = accounts().await;
    attempt(&mut owner, &format!("{WRITER} {REPORT}")).await.unwrap();
    let mut first = session_of(&server, "writer").await;
    let mut second = session_of(&server, "writer").await;
    // Two transactions at once, of which none sees the other's record.
    let each = "begin; insert into accounts values";
    attempt(&mut first, &format!("{each} ('x'), ('y')")).await.unwrap();
    attempt(&mut second, &format!("set lock_timeout = '100ms'; {each} ('z')")).await.unwrap();
    for writer in [&mut first, &mut second] {
        attempt(writer, "commit").await.unwrap();
    }
    assert_eq!(number(&mut owner, "select count(*) from fence.reports").await, 2);
    for _ in 0..3 {
        attempt(&mut first, UPDATE).await.unwrap();
        attempt(&mut session_of(&server, "writer").await, UPDATE).await.unwrap();
    }
    assert_eq!(number(&mut owner, "select count(*) from fence.reports").await, 2);
    // Another application is recorded, up to a number for each table.
    for application in 0..70 {
        let named = format!("set application_name = 'app{application}'; discard temp; {UPDATE}");
        attempt(&mut session_of(&server, "writer").await, &named).await.unwrap();
    }
    assert_eq!(number(&mut owner, "select count(*) from fence.reports").await, 60);

    // What a serializable transaction records makes it conflict with no other.
    let serializable = "begin isolation level serializable; insert into accounts values";
    attempt(&mut owner, &format!("{serializable} ('s1')")).await.unwrap();
    let mut other = session(&server).await;
    attempt(&mut other, &format!("{serializable} ('s2')")).await.unwrap();
    attempt(&mut owner, "commit").await.unwrap();
    attempt(&mut other, "commit").await.unwrap();
}

/// Also if another owner's table is in a schema that this one must not use.
#[tokio::test]
async fn owner_sees_the_records_of_its_own_tables_only() {
    let (server, mut owner) = accounts().await;
    for role in ["first", "second"] {
        let table = format!(
            "create role {role} login; grant usage on schema fence to {role};
             create schema s_{role} authorization {role}; set role {role};
             create table s_{role}.\"Odd.'t\" (id text);
             select fence.protect('s_{role}.\"Odd.''t\"', 'id', 'report');
             insert into s_{role}.\"Odd.'t\" values ('x'); reset role"
        );
        attempt(&mut owner, &table).await.unwrap();
    }
    let seen = "select count(*) from fence.reports cross join fence.protected";
    for role in ["first", "second"] {
        let mut session = session_of(&server, role).await;
        assert_eq!(number(&mut session, seen).await, 1, "{role}");
    }
    // The negative control: who installed the fence sees all, and the table of `accounts`.
    assert_eq!(number(&mut owner, seen).await, 6);
}

/// A pooled session serves one application after the other, and one role after the other.
#[tokio::test]
async fn session_reports_each_application_and_each_role() {
    let (_server, mut owner) = accounts().await;
    attempt(&mut owner, &format!("{WRITER} {REPORT}")).await.unwrap();
    for user in ["set application_name = 'one'", "set application_name = 'two'", "set role writer"]
    {
        for _ in 0..2 {
            attempt(&mut owner, &format!("{user}; {UPDATE}")).await.unwrap();
        }
    }
    let reported = "
        select count(*) from (select distinct application, role from fence.reports) as r
        where (application, role) in (('one', 'postgres'), ('two', 'postgres'), ('two', 'writer'))";
    attempt(&mut owner, "reset role").await.unwrap();
    assert_eq!(number(&mut owner, reported).await, 3);
    assert_eq!(number(&mut owner, "select count(*) from fence.reports").await, 3);
}

#[tokio::test]
async fn only_the_check_of_a_table_reports_of_it() {
    let (server, mut owner) = accounts().await;
    attempt(&mut owner, &format!("{WRITER} {REPORT}")).await.unwrap();
    let mut writer = session_of(&server, "writer").await;
    for forged in [
        "select fence.report('accounts', 'ZF001', 'made up', '')",
        "insert into fence.reports (at, relation, code, role, application, message, detail)
         values (now(), 'public.accounts', '', '', '', '', '')",
        "insert into fence.protected values ('public.accounts', 'x', '', 'report', '')",
    ] {
        assert_eq!(attempt(&mut writer, forged).await.unwrap_err(), NO_PRIVILEGE, "{forged}");
    }
    // The negative control: its writes do report.
    attempt(&mut writer, UPDATE).await.unwrap();
    assert_eq!(number(&mut owner, "select count(*) from fence.reports").await, 1);
    // Nor does it see what others do, or change how they are protected.
    assert_eq!(number(&mut writer, "select count(*) from fence.reports").await, 0);
    for nothing in ["delete from fence.protected", "update fence.protected set mode = 'report'"] {
        let done = attempt_and_roll_back(&mut writer, nothing).await;
        assert_eq!(done, Ok(0), "{nothing}");
    }
}

/// Otherwise each write would warn, and nobody would see a report.
#[tokio::test]
async fn owner_without_rights_on_the_fence_can_not_report() {
    let (server, mut admin) = accounts().await;
    let table = "
        create role stranger login; grant create on schema public to stranger;
        set role stranger; create table theirs (id text); reset role";
    attempt(&mut admin, table).await.unwrap();
    let protect = "select fence.protect('theirs', 'id', 'report')";
    assert_eq!(attempt(&mut admin, protect).await.unwrap_err(), NO_PRIVILEGE);
    let granted = format!("grant usage on schema fence to stranger; {protect}");
    attempt(&mut admin, &granted).await.unwrap();
    attempt(&mut session_of(&server, "stranger").await, "insert into theirs values ('x')")
        .await
        .unwrap();
    assert_eq!(number(&mut admin, "select count(*) from fence.reports").await, 1);
}

#[tokio::test]
async fn settings_of_a_writer_hide_no_report() {
    let (server, mut owner) = accounts().await;
    let parts = "
        create table orders (id text, year int) partition by list (year);
        create table orders_1 partition of orders for values in (1);
        select fence.protect('orders', 'id', 'report');
        create role writer login; grant usage on schema fence to writer;
        grant create on schema public to writer; grant insert on orders to writer;
        alter table orders_1 owner to writer";
    attempt(&mut owner, parts).await.unwrap();
    let mut writer = session_of(&server, "writer").await;
    for setting in ["row_security = off", "quote_all_identifiers = on"] {
        let insert = format!(
            "set {setting}; set application_name = '{setting}'; insert into orders values ('x', 1)"
        );
        attempt(&mut writer, &insert).await.unwrap();
        let reported = format!(
            "select count(*) from fence.reports
             where relation = 'public.orders' and application = '{setting}'"
        );
        assert_eq!(number(&mut owner, &reported).await, 1, "{setting}");
    }
    // The session remembers when it has reported. In this style and zone, it would read its own time as one to come.
    let zone = "
        reset all; set timezone = 'Asia/Kolkata'; set datestyle = 'SQL'; set application_name = 'x';
        insert into orders values ('x', 1)";
    attempt(&mut writer, zone).await.unwrap();
    let remembered = "
        select current_setting('fence.reported_' || md5(e'public.orders\nZF004\nwriter\nx'))::timestamptz
            <= clock_timestamp()";
    assert!(is_true(&mut writer, remembered).await);
}

/// Reports find mistakes, not attacks, as the README says.
#[tokio::test]
async fn session_can_hide_its_own_reports_and_use_up_the_sixty() {
    let (server, mut owner) = accounts().await;
    attempt(&mut owner, &format!("{WRITER} {REPORT}")).await.unwrap();
    let mut writer = session_of(&server, "writer").await;
    let hidden = "
        set application_name = 'x';
        select set_config('fence.reported_' || md5(e'public.accounts\\nZF004\\nwriter\\nx'), '2999-01-01', false)";
    attempt(&mut writer, &format!("{hidden}; {UPDATE}")).await.unwrap();
    assert_eq!(number(&mut owner, "select count(*) from fence.reports").await, 0);
    for application in 0..61 {
        let named = format!("set application_name = 'app{application}'; {UPDATE}");
        attempt(&mut writer, &named).await.unwrap();
    }
    attempt(&mut owner, UPDATE).await.unwrap();
    let others = "select count(*) from fence.reports where role = 'postgres'";
    assert_eq!(number(&mut owner, others).await, 0);
    assert_eq!(number(&mut owner, "select count(*) from fence.reports").await, 60);
}

/// The table that it is a partition of is not protected.
#[tokio::test]
async fn report_of_an_attached_partition_names_that() {
    let (_server, mut owner) = accounts().await;
    let setup = "
        create table orders (id text, year int) partition by list (year);
        create table orders_1 (id text, year int);
        select fence.protect('orders_1', 'id', 'report');
        alter table orders attach partition orders_1 for values in (1);
        insert into orders values ('alice', 1)";
    attempt(&mut owner, setup).await.unwrap();
    let reported = "select count(*) from fence.reports where relation = 'public.orders_1'";
    assert_eq!(number(&mut owner, reported).await, 1);
}
