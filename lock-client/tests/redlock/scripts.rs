//! The scripts compared with the model, one step at a time: all small states of a node, times all
//! small arguments, times each script, on a real Redis and in `Node` of `redlock-model`.
//!
//! The states include those that no run reaches. So the comparison needs no luck.

mod cases;
mod driver;

use testbed::Redis;

use self::{
    cases::{Case, Step},
    driver::{Script, run_cases},
};

/// Returns the cases in which a script and the model differ, with both outcomes.
async fn differences(redis: &Redis, script: &Script, cases: &[Case]) -> Vec<String> {
    let outcomes = run_cases(redis, script, cases).await;
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
        (Step::Grant, "floor .. ' ' .. ARGV[2]", "(floor + 1) .. ' ' .. ARGV[2]"),
        (Step::Grant, "ARGV[2], 'NX',", "ARGV[2],"),
        (Step::Grant, "digits(start))", "digits(start + 1))"),
        (Step::Grant, "may_vote and", ""),
        (Step::Release, "if lock == ARGV[1] and", "if"),
        (Step::Release, "== ARGV[3] then", "then"),
        (Step::Release, "~= ARGV[2] then", "== '' then"),
        (Step::Release, "raise_counter(KEYS[2], ARGV[3])\n", "\n"),
    ];
    for (step, from, to) in errors {
        let mut script = Script::of(step);
        assert!(script.code.contains(from), "{step:?} does not contain {from}");
        script.code = script.code.replacen(from, to, 9);
        let found = differences(&redis, &script, &Case::all_of(step)).await;
        assert!(!found.is_empty(), "{step:?} with {to:?} instead of {from:?}");
    }
}
