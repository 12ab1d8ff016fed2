//! The scripts on a real Redis, many cases in one call.

use redlock_model::{Holder, Token, node::Lock};
use serde_json::{Value, json};
use testbed::Redis;

use super::cases::{Case, Outcome, Reply, Step};

/// How many cases one call has.
const AT_ONCE: usize = 2_000;
/// The ttl of a lock before the step, and the longer one of a request.
const EARLIER_TTL: u64 = 50_000;
pub(super) const REQUESTED_TTL: u64 = 90_000;

/// Sets up each case, runs the script, and collects the reply and the state.
const DRIVER: &str = "
local keys = {'fenced:{r}:lock', 'fenced:{r}:token', 'fenced:node'}
local outcomes = {}
for number, case in ipairs(cjson.decode(ARGV[1])) do
    redis.call('DEL', keys[1], keys[2])
    redis.call('HSET', keys[3], 'vote', ARGV[2] .. ' ' .. case.run_id .. ' c')
    if case.counter ~= '0' then
        redis.call('SET', keys[2], case.counter)
    end
    if case.lock ~= '' then
        redis.call('SET', keys[1], case.lock, 'PX', case.ttl)
    end
    local reply = step(case.keys, case.arguments)
    outcomes[number] = {
        reply = reply,
        counter = redis.call('GET', keys[2]) or '0',
        lock = redis.call('GET', keys[1]) or '',
        ttl = redis.call('PTTL', keys[1]),
    }
end
return cjson.encode(outcomes)
";

macro_rules! files {
    ($($file:literal),+) => {
        concat!($(include_str!(concat!("../../../src/redlock/", $file)), "\n"),+)
    };
}

/// The text of a script.
pub(super) struct Script {
    pub(super) step: Step,
    pub(super) code: String,
}

impl Script {
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let all = [Step::Grant, Step::Join, Step::Seal, Step::Raise, Step::Renew, Step::Release];
        all.into_iter().map(Self::of)
    }

    pub(super) fn of(step: Step) -> Self {
        let code = match step {
            Step::Grant => files!("../redis/counter.lua", "vote.lua", "grant.lua"),
            Step::Join => files!("../redis/counter.lua", "vote.lua", "join.lua"),
            Step::Seal => files!(
                "../redis/counter.lua",
                "raise_counter.lua",
                "vote.lua",
                "owned.lua",
                "seal.lua"
            ),
            Step::Raise => files!("../redis/counter.lua", "vote.lua", "owned.lua", "raise.lua"),
            Step::Renew => files!("vote.lua", "owned.lua", "renew.lua"),
            Step::Release => files!("raise_counter.lua", "vote.lua", "release.lua"),
        };
        Self { step, code: code.to_owned() }
    }
}

/// Runs a script once for each case, on the state of the case. The node grants no longer ttl than the
/// longest.
pub(super) async fn run_cases(
    redis: &Redis,
    script: &Script,
    cases: &[Case],
    longest: u64,
) -> Vec<Outcome> {
    let longest = &longest.to_string();
    let driver = format!("local function step(KEYS, ARGV)\n{}\nend\n{DRIVER}", script.code);
    let mut outcomes = Vec::with_capacity(cases.len());
    for cases in cases.chunks(AT_ONCE) {
        let input = Value::from_iter(cases.iter().map(|case| input(case, longest))).to_string();
        let eval = ["EVAL", &driver, "0", &input, longest];
        let output: String = redis.command(&eval).await.unwrap();
        let output: Vec<Value> = serde_json::from_str(&output).unwrap();
        outcomes.extend(output.iter().zip(cases).map(|(output, case)| outcome(case, output)));
    }
    outcomes
}

fn input(case: &Case, longest: &str) -> Value {
    let [lock, counter, node] = ["fenced:{r}:lock", "fenced:{r}:token", "fenced:node"];
    let number = |place: usize| case.numbers[place].to_string();
    let (ttl, start) = (REQUESTED_TTL.to_string(), "0".to_owned());
    let arguments = match case.step {
        Step::Grant => vec![ttl, start],
        Step::Join => vec![ttl, start, number(0), number(1)],
        Step::Seal => vec![number(0), number(1), number(2)],
        Step::Raise => vec![number(0), number(1), start],
        Step::Renew => vec![number(0), ttl],
        Step::Release => vec![number(0), "freed".to_owned()],
    };
    let vote = format!("{longest} p c");
    let keys = match case.step {
        Step::Renew => vec![lock, node],
        _ => vec![lock, counter, node],
    };
    let voter = [vote, "a".to_owned()].into_iter();
    json!({
        "run_id": if case.is_admitted { "p" } else { "an earlier process" },
        "counter": case.node.counter.to_string(),
        "lock": case.node.lock.map_or(String::new(), value),
        "ttl": EARLIER_TTL,
        "keys": keys,
        "arguments": voter.chain(arguments).collect::<Vec<_>>(),
    })
}

fn outcome(case: &Case, output: &Value) -> Outcome {
    let reply = &output["reply"];
    let part = |place: usize| reply[place].as_u64().and_then(|part| Token::try_from(part).ok());
    let lock = lock(output["lock"].as_str().unwrap());
    let reply = if let Some(error) = reply["err"].as_str() {
        assert!(error.starts_with("NOVOTE") || error.starts_with("FENCED"), "{case:?}: {error}");
        Reply::NoVote
    } else if case.step == Step::Release {
        Reply::Released(reply.as_u64().unwrap() == 1)
    } else if let (Step::Grant, Some(grant)) = (case.step, reply.as_u64()) {
        let grant = Token::try_from(grant).unwrap();
        let floor = lock.expect("a granted node has the lock").floor;
        Reply::Owned { number: grant, grant, floor }
    } else {
        match (part(0), part(1), part(2)) {
            (_, None, None) => Reply::Rejected,
            (Some(0), Some(grant), Some(floor)) => Reply::Own { grant, floor },
            (Some(number), Some(grant), Some(floor)) => Reply::Owned { number, grant, floor },
            other => panic!("{case:?}: {other:?}"),
        }
    };
    Outcome {
        reply,
        counter: output["counter"].as_str().unwrap().parse().unwrap(),
        lock,
        has_full_ttl: output["ttl"].as_u64().is_some_and(|ttl| ttl > EARLIER_TTL),
    }
}

/// The value of a lock in Redis.
fn value(lock: Lock) -> String {
    let holder = if lock.holder == Holder(0) { "a" } else { "b" };
    if [lock.token, lock.grant] == [lock.floor + 1; 2] {
        format!("{} {holder}", lock.floor)
    } else {
        format!("{} {holder} {} {}", lock.floor, lock.token, lock.grant)
    }
}

fn lock(value: &str) -> Option<Lock> {
    let number = |part: &str| part.parse::<Token>().unwrap();
    let (floor, holder, token, grant) = match value.split(' ').collect::<Vec<_>>()[..] {
        [""] => return None,
        [floor, holder] => (number(floor), holder, number(floor) + 1, number(floor) + 1),
        [floor, holder, token, grant] => (number(floor), holder, number(token), number(grant)),
        _ => panic!("a lock has two or four parts: {value}"),
    };
    Some(Lock { token, grant, floor, holder: Holder(u8::from(holder != "a")) })
}
