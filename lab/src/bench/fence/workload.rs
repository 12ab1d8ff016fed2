//! The transactions that pgbench runs, fenced and unfenced.

pub(super) const TABLES: &str = "
    create table unfenced (resource text primary key, value bigint not null) with (fillfactor = 70);
    create table ruled (
        resource text primary key, value bigint not null,
        token bigint not null, holder text not null
    ) with (fillfactor = 70);
    create table second (like unfenced including all) with (fillfactor = 50);
    create table protected (like unfenced including all) with (fillfactor = 70);
    select fence.protect('protected', 'resource');";

const UPSERT: &str = "
    insert into unfenced values ('bench/' || :n, 1)
    on conflict (resource) do update set value = excluded.value;";

const UPSERT_WITH_RULE: &str = "
    insert into ruled as r values ('bench/' || :n, 1, 34, 'me')
    on conflict (resource) do update
    set value = excluded.value, token = excluded.token, holder = excluded.holder
    where excluded.token > r.token or (excluded.token = r.token and excluded.holder = r.holder);";

const CLAIM_AND_UPSERT: &str = "
    with claimed as materialized (select fence.claim('bench/' || :n, 34, 'me'))
    insert into unfenced select 'bench/' || :n, 1 from claimed
    on conflict (resource) do update set value = excluded.value;";

const UPSERT_PROTECTED: &str = "
    insert into protected values ('bench/' || :n, 1)
    on conflict (resource) do update set value = excluded.value;";

const CLAIM: &str = "select fence.claim('bench/' || :n, 34, 'me');";
const PRESENT: &str = "select fence.present(34, 'me');";
/// Costs the round trip of a claim, and nothing else.
const SELECT_CONSTANTS: &str = "select 34, 'me';";
/// The least that a claim must do if the fence has its own row: write that row.
const UPDATE_SECOND_ROW: &str = "update second set value = 34 where resource = 'bench/' || :n;";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Workload {
    Upsert,
    UpsertWithRule,
    ClaimAndUpsert,
    Transaction,
    TransactionOfTwoRows,
    ClaimThenUpsert,
    ClaimThenUpsertProtected,
    PresentThenUpsertProtected,
}

impl Workload {
    pub(super) const ALL: [Self; 8] = [
        Self::Upsert,
        Self::UpsertWithRule,
        Self::ClaimAndUpsert,
        Self::Transaction,
        Self::TransactionOfTwoRows,
        Self::ClaimThenUpsert,
        Self::ClaimThenUpsertProtected,
        Self::PresentThenUpsertProtected,
    ];

    pub(super) fn subject(self) -> &'static str {
        match self {
            Self::Upsert => "an upsert, unfenced",
            Self::UpsertWithRule => "an upsert with the rule in it",
            Self::ClaimAndUpsert => "claim and upsert in one statement",
            Self::Transaction => "a transaction with an upsert, unfenced",
            Self::TransactionOfTwoRows => "the same, and a second row written",
            Self::ClaimThenUpsert => "claim and upsert in a transaction",
            Self::ClaimThenUpsertProtected => "claim and upsert into a protected table",
            Self::PresentThenUpsertProtected => "present and upsert into a protected table",
        }
    }

    /// The unfenced workload that this one is compared with.
    pub(super) fn unfenced(self) -> Self {
        match self {
            Self::Upsert | Self::UpsertWithRule | Self::ClaimAndUpsert => Self::Upsert,
            _ => Self::Transaction,
        }
    }

    /// The script for pgbench. Each run picks one of the resources at random.
    pub(super) fn script(self, resources: u32) -> String {
        let transaction = |first: &str, upsert: &str| format!("begin;\n{first}\n{upsert}\ncommit;");
        let statements = match self {
            Self::Upsert => UPSERT.to_owned(),
            Self::UpsertWithRule => UPSERT_WITH_RULE.to_owned(),
            Self::ClaimAndUpsert => CLAIM_AND_UPSERT.to_owned(),
            Self::Transaction => transaction(SELECT_CONSTANTS, UPSERT),
            Self::TransactionOfTwoRows => transaction(UPDATE_SECOND_ROW, UPSERT),
            Self::ClaimThenUpsert => transaction(CLAIM, UPSERT),
            Self::ClaimThenUpsertProtected => transaction(CLAIM, UPSERT_PROTECTED),
            Self::PresentThenUpsertProtected => transaction(PRESENT, UPSERT_PROTECTED),
        };
        format!("\\set n random(0, {resources} - 1)\n{statements}\n")
    }
}

/// The transactions per second of each workload.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rates([f64; Workload::ALL.len()]);

impl Rates {
    pub(super) fn get(&self, workload: Workload) -> f64 {
        self.0[workload as usize]
    }

    pub(super) fn get_mut(&mut self, workload: Workload) -> &mut f64 {
        &mut self.0[workload as usize]
    }

    /// The rate of a workload, as a part of its unfenced counterpart's rate.
    pub(super) fn of_unfenced(&self, workload: Workload) -> f64 {
        self.get(workload) / self.get(workload.unfenced())
    }
}
