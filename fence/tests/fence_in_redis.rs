//! The fence inside Redis: what its script promises beyond the rule.

use std::process::Command;

use fence::{Fence, redis::Fenced};
use redis::{FromRedisValue, Value, aio::MultiplexedConnection};
use testbed::Redis;

use crate::names::{name, token};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../migrations/redis/fence/fenced.lua");

const FENCE: &str = "fenced:{alice}:fence";
const BALANCE: &str = "{alice}:balance";

/// A Redis in which the fence of alice is at token 34, of holder a.
async fn claimed() -> (Redis, MultiplexedConnection) {
    let server = Redis::start().await.unwrap();
    let mut connection = testbed::redis::connect(server.url()).await.unwrap();
    run(&mut connection, &[FENCE], &["34", "a"]).await.unwrap();
    (server, connection)
}

/// Runs the script as any client would, and returns an error by its code.
async fn run(
    connection: &mut MultiplexedConnection,
    keys: &[&str],
    arguments: &[&str],
) -> Result<Value, String> {
    let mut eval = redis::cmd("EVAL");
    eval.arg(include_str!("../../migrations/redis/fence/fenced.lua")).arg(keys.len());
    let done = eval.arg(keys).arg(arguments).query_async(connection).await;
    done.map_err(|error| error.code().unwrap_or_default().to_owned())
}

async fn asked<T: FromRedisValue>(connection: &mut MultiplexedConnection, command: &[&str]) -> T {
    redis::cmd(command[0]).arg(&command[1..]).query_async(connection).await.unwrap()
}

#[tokio::test]
async fn each_command_is_under_the_rule() {
    let (_server, mut connection) = claimed().await;
    let _: () = asked(&mut connection, &["SET", BALANCE, "100"]).await;
    let hash = "{alice}:hash";
    let _: () = asked(&mut connection, &["HSET", hash, "name", "Alice"]).await;
    let before: (String, String) = (
        asked(&mut connection, &["GET", BALANCE]).await,
        asked(&mut connection, &["HGET", hash, "name"]).await,
    );
    let commands: [(&str, &[&str]); 4] = [
        (BALANCE, &["SET", "70", "EX", "100"]),
        (hash, &["HSET", "name", "A", "age", "7"]),
        (BALANCE, &["DEL"]),
        (hash, &["DEL"]),
    ];
    for (token, holder, expected) in
        [("33", "a", "ZF001"), ("34", "b", "ZF002"), ("34", "", "ZF002")]
    {
        for (key, command) in commands {
            let arguments = [&[token, holder], command].concat();
            let rejected = run(&mut connection, &[FENCE, key], &arguments).await;
            assert_eq!(rejected.unwrap_err(), expected, "{command:?}");
        }
    }
    let after = (
        asked(&mut connection, &["GET", BALANCE]).await,
        asked(&mut connection, &["HGET", hash, "name"]).await,
    );
    assert_eq!(before, after);

    let mut accepted = async |place: usize, token: &str| {
        let (key, command) = commands[place];
        run(&mut connection, &[FENCE, key], &[&[token, "a"], command].concat()).await.unwrap()
    };
    assert_eq!(accepted(0, "34").await, Value::Okay);
    assert_eq!(accepted(1, "35").await, Value::Int(1));
    let seconds: i64 = asked(&mut connection.clone(), &["TTL", BALANCE]).await;
    assert!((1..=100).contains(&seconds));
    let age: String = asked(&mut connection, &["HGET", hash, "age"]).await;
    assert_eq!(age, "7");
}

#[tokio::test]
async fn deletes_and_expiry_of_the_value_keep_the_fence() {
    let (_server, mut connection) = claimed().await;
    let set = ["34", "a", "SET", "70", "PX", "1"];
    run(&mut connection, &[FENCE, BALANCE], &set).await.unwrap();
    run(&mut connection, &[FENCE, BALANCE], &["36", "a", "DEL"]).await.unwrap();
    let exists: i64 = asked(&mut connection, &["EXISTS", BALANCE]).await;
    assert_eq!(exists, 0);
    let expires: i64 = asked(&mut connection, &["TTL", FENCE]).await;
    assert_eq!(expires, -1, "it never does");
    let stale = run(&mut connection, &[FENCE, BALANCE], &["35", "a", "SET", "70"]).await;
    assert_eq!(stale.unwrap_err(), "ZF001");
}

/// Somebody has let the fence expire, such as a tool that gives every key a ttl.
#[tokio::test]
async fn claim_takes_an_expiry_off_the_fence() {
    let (_server, mut connection) = claimed().await;
    for token in ["34", "35"] {
        let _: bool = asked(&mut connection, &["EXPIRE", FENCE, "100"]).await;
        run(&mut connection, &[FENCE], &[token, "a"]).await.unwrap();
        let expires: i64 = asked(&mut connection, &["TTL", FENCE]).await;
        assert_eq!(expires, -1, "{token}");
    }
    // The control: a rejection changes nothing.
    let _: bool = asked(&mut connection, &["EXPIRE", FENCE, "100"]).await;
    run(&mut connection, &[FENCE], &["33", "a"]).await.unwrap_err();
    let expires: i64 = asked(&mut connection, &["TTL", FENCE]).await;
    assert!(expires > 0);
}

/// As many arguments as the script takes reach the command.
#[tokio::test]
async fn longest_command_is_carried_out() {
    let (_server, mut connection) = claimed().await;
    let fields: Vec<_> = (0..3500).map(|number| format!("f{number}")).collect();
    let mut arguments = vec!["35", "a", "HSET"];
    arguments.extend(fields.iter().flat_map(|field| [field.as_str(), "1"]));
    let written = run(&mut connection, &[FENCE, BALANCE], &arguments).await.unwrap();
    assert_eq!(written, Value::Int(3500));
}

#[tokio::test]
async fn command_that_fails_has_still_claimed() {
    let (_server, mut connection) = claimed().await;
    let _: () = asked(&mut connection, &["RPUSH", BALANCE, "a list"]).await;
    let wrong = ["36", "a", "HSET", "field", "value"];
    let failed = run(&mut connection, &[FENCE, BALANCE], &wrong).await;
    assert_eq!(failed.unwrap_err(), "WRONGTYPE");
    let stale = run(&mut connection, &[FENCE], &["35", "a"]).await;
    assert_eq!(stale.unwrap_err(), "ZF001");
    let kind: String = asked(&mut connection, &["TYPE", BALANCE]).await;
    assert_eq!(kind, "list");
}

#[tokio::test]
async fn malformed_calls_change_nothing() {
    let (_server, mut connection) = claimed().await;
    let long = "m".repeat(129);
    for (token, holder) in [
        ("0", "a"),
        ("0", ""),
        ("", "a"),
        ("-1", "a"),
        ("+35", "a"),
        ("035", "a"),
        ("35.0", "a"),
        ("4e1", "a"),
        ("0x40", "a"),
        (" 35", "a"),
        ("35\n", "a"),
        ("35\0", "a"),
        ("1000000000000000", "a"),
        ("35", "a b"),
        ("35", "a\n"),
        ("35", "a\0"),
        ("35", "ż"),
        ("35", long.as_str()),
    ] {
        for keys in [&[FENCE][..], &[FENCE, BALANCE]] {
            let arguments = [token, holder, "SET", "70"];
            let arguments = &arguments[..keys.len() * 2];
            let rejected = run(&mut connection, keys, arguments).await;
            assert_eq!(rejected.unwrap_err(), "ZF003", "{token:?}, {holder:?}");
        }
    }
    let many = [&["35", "a", "HSET"][..], &["field"; 7001]].concat();
    let calls: [(&[&str], &[&str]); 13] = [
        (&[FENCE], &[]),
        (&[FENCE], &["35"]),
        (&[FENCE], &["35", "a", "SET", "70"]),
        (&[FENCE, BALANCE], &["35", "a"]),
        (&[FENCE, BALANCE], &["35", "a", "set", "70"]),
        (&[FENCE, BALANCE], &["35", "a", "FLUSHALL"]),
        (&[FENCE, BALANCE], &["35", "a", "EXPIRE", "1"]),
        // A fence is no value: it is neither written over nor deleted, also not beside another.
        (&[FENCE, FENCE], &["35", "a", "DEL"]),
        (&[FENCE, FENCE], &["35", "a", "HSET", "token", "1"]),
        (&[FENCE, BALANCE], &["35", "a", "DEL", FENCE]),
        // A value that looked like a fence could never be written again.
        (&[FENCE, BALANCE], &["35", "a", "HSET", "fenced.lua", "1"]),
        (&[FENCE, BALANCE], &["35", "a", "HSET", "field", "1", "fenced.lua", "1"]),
        // Lua could not pass them on, after the claim.
        (&[FENCE, BALANCE], &many),
    ];
    for (keys, arguments) in calls {
        let rejected = run(&mut connection, keys, arguments).await;
        assert_eq!(rejected.unwrap_err(), "ZF003", "{keys:?}, {arguments:?}");
    }
    let fence: Vec<String> = asked(&mut connection, &["HMGET", FENCE, "token", "holder"]).await;
    assert_eq!(fence, ["34", "a"]);
}

/// A value's key that is the fence of another resource lowered that fence.
#[tokio::test]
async fn no_value_is_written_over_a_fence_of_any_resource() {
    let (_server, mut connection) = claimed().await;
    let fences = [
        FENCE,
        "fenced:{bob}:fence",
        "fenced:{}:fence",
        "fenced:{a%7Bb%7D}:fence",
        "fenced:{{alice}}:fence",
        "{alice}:my own fence",
    ];
    for fence in fences {
        run(&mut connection, &[fence], &["34", "a"]).await.unwrap();
    }
    // It need not exist yet.
    let all = [&fences[..], &["fenced:{carol}:fence"]].concat();
    for value in all {
        let commands: [&[&str]; 4] = [
            &["SET", "7"],
            &["DEL"],
            &["HSET", "token", "1", "holder", "b"],
            &["HSET", "fenced.lua", "0"],
        ];
        for command in commands {
            let arguments = [&["35", "b"], command].concat();
            let rejected = run(&mut connection, &["{dora}:fence", value], &arguments).await;
            assert_eq!(rejected.unwrap_err(), "ZF003", "{value}: {command:?}");
        }
    }
    for fence in fences {
        let seen: (String, String) =
            asked(&mut connection, &["HMGET", fence, "token", "holder"]).await;
        assert_eq!(seen, ("34".to_owned(), "a".to_owned()), "{fence}");
        let stale = run(&mut connection, &[fence], &["33", "a"]).await;
        assert_eq!(stale.unwrap_err(), "ZF001", "{fence}");
    }
    let exist = ["EXISTS", "{dora}:fence", "fenced:{carol}:fence"];
    let changed: i64 = asked(&mut connection, &exist).await;
    assert_eq!(changed, 0, "a rejected call claims nothing");

    // The negative control: values that only look like fences.
    for value in ["{alice}:fence", "fenced:{alice}:fences", "my fenced:{alice}:fence", "fence"] {
        for _ in 0..2 {
            let set = ["35", "a", "HSET", "token", "1", "holder", "b"];
            run(&mut connection, &[FENCE, value], &set).await.expect(value);
        }
        run(&mut connection, &[FENCE, value], &["35", "a", "SET", "7"]).await.expect(value);
        run(&mut connection, &[FENCE, value], &["35", "a", "DEL"]).await.expect(value);
    }
}

/// The previous script wrote no mark. The name shows its fences, and the next claim marks the rest.
#[tokio::test]
async fn fence_of_the_previous_script_is_no_value_either() {
    let (_server, mut connection) = claimed().await;
    for fence in ["fenced:{bob}:fence", "bob"] {
        let _: () = asked(&mut connection, &["HSET", fence, "token", "34", "holder", "a"]).await;
    }
    run(&mut connection, &["bob"], &["34", "a"]).await.unwrap();
    for fence in ["fenced:{bob}:fence", "bob"] {
        let rejected = run(&mut connection, &[FENCE, fence], &["35", "a", "DEL"]).await;
        assert_eq!(rejected.unwrap_err(), "ZF003", "{fence}");
        let stale = run(&mut connection, &[fence], &["33", "a"]).await;
        assert_eq!(stale.unwrap_err(), "ZF001", "{fence}");
    }
}

#[tokio::test]
async fn library_works_after_the_scripts_were_flushed() {
    let (_server, mut connection) = claimed().await;
    let offered = |number| Fence { token: token(number), holder: "a".parse().unwrap() };
    let fenced = Fenced::new(&name("alice"), &offered(35));
    for _ in 0..3 {
        fenced.set(&mut connection, BALANCE, "70").await.unwrap();
        fenced.hset(&mut connection, "{alice}:hash", &[("name", "Alice")]).await.unwrap();
        fenced.del(&mut connection, BALANCE).await.unwrap();
        let _: () = asked(&mut connection, &["SCRIPT", "FLUSH"]).await;
    }
    let stale = Fenced::new(&name("alice"), &offered(34));
    stale.set(&mut connection, BALANCE, "7").await.unwrap_err();
    let exists: i64 = asked(&mut connection, &["EXISTS", BALANCE]).await;
    assert_eq!(exists, 0);
}

/// As the script's header says.
#[tokio::test]
async fn redis_cli_runs_the_script() {
    let (server, mut connection) = claimed().await;
    let eval = |arguments: &str| {
        let mut command = Command::new("redis-cli");
        command.arg("-s").arg(server.socket()).arg("--eval").arg(SCRIPT);
        let output = command.args(arguments.split(' ')).output();
        let output = output.expect("redis-cli is installed; the package redis-tools has it");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(eval("fenced:{alice}:fence {alice}:balance , 35 me SET 70"), "OK");
    assert_eq!(eval("fenced:{alice}:fence , 36 me"), "OK");
    let stale = eval("fenced:{alice}:fence {alice}:balance , 35 me SET 7");
    assert!(stale.contains(r#"ZF001 {"token":35,"highest_token":36}"#), "{stale}");
    let balance: String = asked(&mut connection, &["GET", BALANCE]).await;
    assert_eq!(balance, "70");
}
