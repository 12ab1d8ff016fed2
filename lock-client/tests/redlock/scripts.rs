//! The scripts compared with the model, one step at a time: all small states of a node, times all
//! small arguments, times each script, on a real Redis and in `Node` of `redlock-model`.
//!
//! The states include those that no run reaches. So the comparison needs no luck.

mod cases;
mod driver;

use testbed::Redis;

use self::{
    cases::{Case, Reply, Step},
    driver::{REQUESTED_TTL, Script, run_cases},
};

/// Returns the cases in which a script and the model differ, with both outcomes.
async fn differences(redis: &Redis, script: &Script, cases: &[Case]) -> Vec<String> {
    let outcomes = run_cases(redis, script, cases, REQUESTED_TTL).await;
    let compared = cases.iter().zip(outcomes).filter_map(|(case, outcome)| {
        let expected = case.expected();
        (outcome != expected).then(|| format!("{case:?}: {outcome:?}, the model: {expected:?}"))
    });
    compared.collect()
}

#[tokio::test]
async fn every_step_of_the_scripts_is_a_step_of_the_model() {
    let redis = Redis::start().await.unwrap();
    let mut compared = 0;
    for script in Script::all() {
        let cases = Case::all_of(script.step);
        let found = differences(&redis, &script, &cases).await;
        assert!(found.is_empty(), "{} of {}:\n{}", found.len(), cases.len(), found.join("\n"));
        compared += cases.len();
    }
    assert!(compared > 20_000, "only {compared} cases");
}

/// Another implementation may not compare its ttl with the longest. No lock may outlast the wait of an
/// admission.
#[tokio::test]
async fn scripts_reject_a_ttl_above_the_longest() {
    let redis = Redis::start().await.unwrap();
    for step in [Step::Grant, Step::Join, Step::Renew] {
        let (script, cases) = (Script::of(step), Case::all_of(step));
        let rejected = run_cases(&redis, &script, &cases, REQUESTED_TTL - 1).await;
        for (case, outcome) in cases.iter().zip(rejected) {
            assert_eq!(outcome.reply, Reply::NoVote, "{case:?}");
            let unchanged = (case.node.counter, case.node.lock, false);
            assert_eq!((outcome.counter, outcome.lock, outcome.has_full_ttl), unchanged);
        }
        // The control: the longest itself is granted.
        let granted = run_cases(&redis, &script, &cases, REQUESTED_TTL).await;
        assert!(granted.iter().any(|outcome| outcome.has_full_ttl), "{step:?}");
    }
}

/// A seal that sealed nothing must not be answered as one.
#[tokio::test]
async fn seal_is_rejected_where_the_counter_is_none() {
    let redis = Redis::start().await.unwrap();
    redis.set("lock", "7 a").await.unwrap();
    redis.command::<()>(&["HSET", "counter", "a", "b"]).await.unwrap();
    redis.command::<()>(&["HSET", "node", "vote", "9 p c"]).await.unwrap();
    let seal = ["3", "lock", "counter", "node", "9 p c", "a", "8", "9", "9"];
    let script = Script::of(Step::Seal);
    let seal = [&["EVAL", &script.code], &seal[..]].concat();
    let error = redis.command::<Vec<u64>>(&seal).await.unwrap_err().to_string();
    assert!(error.contains("is not a whole number"), "{error}");
    assert_eq!(redis.command::<String>(&["GET", "lock"]).await.unwrap(), "7 a");
}

/// A client that is rejected learns who has the lock, also from a node that takes no writes.
#[tokio::test]
async fn grant_on_a_node_that_takes_no_writes_names_the_holder() {
    let redis = Redis::start().await.unwrap();
    redis.command::<()>(&["HSET", "node", "vote", "9 p c"]).await.unwrap();
    redis.set("lock", "7 a").await.unwrap();
    redis.command::<()>(&["CONFIG", "SET", "min-replicas-to-write", "1"]).await.unwrap();
    let script = Script::of(Step::Grant).code;
    // The control looks at the counter first, and starts it.
    let control = script.replace("local lock", "redis.call('SET', KEYS[2], ARGV[4])\nlocal lock");
    let grant = async |script: &str| {
        let request = ["3", "lock", "counter", "node", "9 p c", "b", "9", "7"];
        redis.command::<(i64, String)>(&[&["EVAL", script], &request[..]].concat()).await
    };
    assert_eq!(grant(&script).await.unwrap(), (-1, "a".to_owned()));
    assert!(grant(&control).await.unwrap_err().to_string().contains("NOREPLICAS"));
    // A free lock is not granted there, and nothing changes.
    redis.command::<()>(&["CONFIG", "SET", "min-replicas-to-write", "0"]).await.unwrap();
    redis.command::<()>(&["DEL", "lock"]).await.unwrap();
    redis.command::<()>(&["CONFIG", "SET", "min-replicas-to-write", "1"]).await.unwrap();
    assert!(grant(&script).await.unwrap_err().to_string().contains("NOREPLICAS"));
    assert!(redis.command::<Vec<String>>(&["KEYS", "*"]).await.unwrap() == ["node"]);
}

/// It raises the counter where it does not have the lock, and that fails.
#[tokio::test]
async fn release_is_answered_by_a_node_whose_memory_is_full() {
    let redis = Redis::start().await.unwrap();
    redis.command::<()>(&["HSET", "node", "vote", "9 p c"]).await.unwrap();
    redis.command::<()>(&["CONFIG", "SET", "maxmemory", "1"]).await.unwrap();
    let release = ["3", "lock", "counter", "node", "9 p c", "a", "9", "freed"];
    let script = Script::of(Step::Release);
    let release = [&["EVAL", &script.code], &release[..]].concat();
    assert_eq!(redis.command::<u8>(&release).await.unwrap(), 0);
}

/// Each of these errors, put in by hand, is found.
#[tokio::test]
async fn errors_in_the_scripts_are_found() {
    let redis = Redis::start().await.unwrap();
    let errors = [
        (Step::Seal, "own_grant ~= grant and own_grant ~= other_grant", "false"),
        (Step::Seal, "< tonumber(floor)", "<= tonumber(floor)"),
        (Step::Seal, "math.max(tonumber(token), tonumber(ARGV[5]))", "tonumber(ARGV[5])"),
        (Step::Renew, "own_grant ~= grant", "tonumber(own_grant) > tonumber(grant)"),
        (Step::Renew, "redis.call('PEXPIRE', KEYS[1], ARGV[4])", ""),
        (Step::Raise, "digits(last + 1)", "digits(last)"),
        (Step::Join, "floor > tonumber(ARGV[6])", "floor >= tonumber(ARGV[6])"),
        (Step::Join, "ARGV[2], digits(floor)", "ARGV[2], digits(0)"),
        (Step::Grant, "floor .. ' ' .. ARGV[2]", "last + 1 .. ' ' .. ARGV[2]"),
        (Step::Grant, "if lock then", "if false then"),
        (Step::Grant, "'INCR', KEYS[2]", "'INCRBY', KEYS[2], 2"),
        (Step::Grant, "own ~= vote", "false"),
        (Step::Release, "== ARGV[2]", "~= ''"),
        (Step::Release, "pcall(raise_counter, KEYS[2], ARGV[3])\n", "\n"),
        (Step::Release, "and not is_admitted(own, ARGV[1])", "and false"),
    ];
    for (step, from, to) in errors {
        let mut script = Script::of(step);
        assert!(script.code.contains(from), "{step:?} does not contain {from}");
        script.code = script.code.replacen(from, to, 9);
        let found = differences(&redis, &script, &Case::all_of(step)).await;
        assert!(!found.is_empty(), "{step:?} with {to:?} instead of {from:?}");
    }
}
