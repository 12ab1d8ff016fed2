//! `lock-client run`: the environment of the command, the wait for the lock, and the exit code.

use lock_client::{Terms, Ttl};
use serde_json::json;
use testbed::{Redis, wait::until_async};

use crate::{
    command::{
        BUSY, NO_ANSWER, PATIENCE, Run, assert_failed, command, lock_client, locks, output,
        unix_millis,
    },
    names::name,
};

const PRINT_ENVIRONMENT: &str = r#"
    echo "$FENCING_TOKEN"; echo "$FENCING_HOLDER"; echo "$FENCING_RESOURCE"
    echo "$FENCING_RESOURCE_PATH"; echo "$FENCING_DEADLINE_MS"; read go"#;

#[tokio::test]
async fn command_has_its_lease_in_the_environment_whatever_was_inherited() {
    let redis = Redis::start().await.unwrap();
    redis.set("fenced:{r}:token", "32").await.unwrap();
    let inherited = [
        ("FENCING_TOKEN", "999"),
        ("FENCING_HOLDER", "somebody-else-entirely"),
        ("FENCING_RESOURCE", "another"),
        ("FENCING_RESOURCE_PATH", "another%20path"),
        ("FENCING_DEADLINE_MS", "1"),
    ];
    let before = unix_millis();
    let mut run = Run::start_with(&redis, &["--ttl", "60s"], PRINT_ENVIRONMENT, &inherited);
    assert_eq!(run.line().await, "33");
    let holder = run.line().await;
    assert_eq!(run.line().await, "r");
    assert_eq!(run.line().await, "r", "as a path");
    let deadline: u64 = run.line().await.parse().unwrap();
    assert!((before + 50_000..=unix_millis() + 60_000).contains(&deadline), "{deadline}");
    let lock: String = redis.command(&["GET", "fenced:{r}:lock"]).await.unwrap();
    assert!(lock.starts_with(&format!("33 33 {holder} ")), "{lock}");

    run.continue_script();
    assert_eq!(run.exit_code().await, 0);
    let acquired =
        json!({"event": "acquired", "resource": "r", "token": 33, "deadline_ms": deadline});
    assert_eq!(run.events()[0], acquired);
    assert_eq!(run.event_names(), ["acquired", "started", "exited", "released"]);
    assert!(!format!("{:?}", run.events()).contains(&holder), "no event has the holder");

    // The control: without a lock, the same script prints what it inherited.
    let mut plain = std::process::Command::new("sh");
    plain.args(["-c", PRINT_ENVIRONMENT]).envs(inherited);
    let printed = String::from_utf8(output(plain).await.stdout).unwrap();
    assert_eq!(printed, "999\nsomebody-else-entirely\nanother\nanother%20path\n1\n");
}

#[tokio::test]
async fn command_gets_no_password() {
    let redis = Redis::start_with(&["--requirepass", "secret"]).await.unwrap();
    let url = redis.url_as("default", "secret");
    let script = "cat /proc/$$/cmdline; env; echo end";
    let arguments = ["run", "r", "--", "sh", "-c", script];
    for given in [None, Some(url.as_str())] {
        let mut run = command(&[&arguments[..2], given.map_or(&[][..], |_| &["--locks"])].concat());
        run.args(given).args(&arguments[2..]).env("FENCED_LOCKS", &url);
        let output = output(run).await;
        let printed = String::from_utf8(output.stdout).unwrap();
        assert!(printed.ends_with("end\n") && printed.contains("FENCING_TOKEN="), "{printed}");
        assert!(!printed.contains("secret") && !printed.contains("FENCED_LOCKS"), "{printed}");
    }
    // The control: a URL without a password is passed on.
    let redis = Redis::start().await.unwrap();
    let url = redis.url();
    let mut run = command(&arguments);
    run.env("FENCED_LOCKS", &url);
    let printed = String::from_utf8(output(run).await.stdout).unwrap();
    assert!(printed.contains(&format!("FENCED_LOCKS={url}\n")), "{printed}");
}

#[tokio::test]
async fn exit_code_is_the_commands_own() {
    let redis = Redis::start().await.unwrap();
    for (script, code, end) in [
        ("exit 0", 0, json!({"event": "exited", "code": 0})),
        ("exit 7", 7, json!({"event": "exited", "code": 7})),
        ("kill -9 $$", 137, json!({"event": "killed", "signal": 9})),
        ("kill -TERM $$", 143, json!({"event": "killed", "signal": 15})),
        // Codes of run, as the command's own: the event shows whose they are.
        ("exit 75", 75, json!({"event": "exited", "code": 75})),
        ("exit 79", 79, json!({"event": "exited", "code": 79})),
        ("exit 127", 127, json!({"event": "exited", "code": 127})),
    ] {
        let mut run = Run::start(&redis, &[], script);
        assert_eq!(run.exit_code().await, code, "{script}");
        assert_eq!(run.events()[2], end, "{script}");
    }
}

#[tokio::test]
async fn command_that_cannot_be_run_is_reported_before_the_lock_is_acquired() {
    let redis = Redis::start().await.unwrap();
    redis.set("fenced:{r}:token", "32").await.unwrap();
    let url = redis.url();
    let run = |program| {
        let url = url.clone();
        async move { lock_client(&["run", "r", "--locks", &url, "--", program]).await }
    };
    assert_failed(&run("no-such-program").await, 127, "no-such-program is not in the PATH");
    assert_failed(&run("/no/such/program").await, 127, "/no/such/program does not exist");
    assert_failed(&run("/etc/passwd").await, 126, "not executable");
    assert_failed(&run("/etc").await, 126, "not a file");
    let counter: String = redis.command(&["GET", "fenced:{r}:token"]).await.unwrap();
    assert_eq!(counter, "32", "no lock was granted");

    // Only the operating system finds that this can't be run. The lock is free again.
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script");
    std::fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    let mut executable = std::fs::metadata(&script).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut executable, 0o755);
    std::fs::set_permissions(&script, executable).unwrap();
    let script = script.to_str().unwrap().to_owned();
    let failed = lock_client(&["run", "r", "--locks", &url, "--", &script]).await;
    assert_failed(&failed, 127, "can't be run");
    let status = locks(&redis).status(&name("r")).await.unwrap();
    assert_eq!((status.last_token, status.held), (Some(33), None));
}

#[tokio::test]
async fn busy_is_75_or_the_code_that_was_asked_for() {
    let redis = Redis::start().await.unwrap();
    let ttl = Ttl::from_secs(60).unwrap();
    let lease = locks(&redis).acquire(&name("r"), ttl).await.unwrap();
    let cases: [(&[&str], i32); 5] = [
        (&["--no-wait"], 75),
        (&["--wait", "100ms"], 75),
        (&["--no-wait", "--conflict-exit-code", "9"], 9),
        (&["--skip-if-busy"], 0),
        (&["--skip-if-busy", "--wait", "100ms"], 0),
    ];
    for (options, code) in cases {
        let mut run = Run::start(&redis, options, "echo it ran");
        assert_eq!(run.exit_code().await, code, "{options:?}");
        assert_eq!(run.event_names(), ["busy"]);
        let reported = run.stderr().contains(BUSY);
        assert_eq!(reported, code != 0, "with --skip-if-busy, nothing is printed");
        assert!(run.process().line(PATIENCE).await.is_err(), "the command is not run");
    }
    lease.release().await.unwrap();
    // The control: the same options, and the lock is free.
    for (options, _) in cases {
        assert_eq!(Run::start(&redis, options, "exit 3").exit_code().await, 3, "{options:?}");
    }
}

#[tokio::test]
async fn run_waits_until_the_lock_is_free() {
    let redis = Redis::start().await.unwrap();
    let mut first = Run::start(&redis, &[], "echo began; read go");
    assert_eq!(first.line().await, "began");
    let mut limited = Run::start(&redis, &["--wait", "60s"], "echo began");
    let mut unlimited = Run::start(&redis, &[], "echo began");
    let listening = ["PUBSUB", "NUMSUB", "fenced:{r}:freed"];
    let both_wait = async || Ok(redis.command::<(String, u64)>(&listening).await?.1 == 2);
    until_async(PATIENCE, both_wait).await.unwrap();
    assert!(limited.event_names().is_empty() && unlimited.event_names().is_empty());
    first.continue_script();
    assert_eq!(first.exit_code().await, 0);
    assert_eq!((limited.exit_code().await, unlimited.exit_code().await), (0, 0));
}

#[tokio::test]
async fn fair_runs_acquire_in_the_order_of_their_arrival() {
    let redis = Redis::start().await.unwrap();
    redis.set("fenced:{r}:token", "32").await.unwrap();
    let locks = locks(&redis);
    let lease = locks.acquire(&name("r"), Ttl::from_secs(60).unwrap()).await.unwrap();
    let mut waiting = Vec::new();
    for place in 1..=4 {
        waiting.push(Run::start(&redis, &["--fair"], "true"));
        let queued = || async { Ok(locks.status(&name("r")).await?.queued == place) };
        until_async(PATIENCE, queued).await.unwrap();
    }
    // A client that doesn't queue can't overtake the queue, either.
    let tried = Terms::new(Ttl::from_secs(60).unwrap()).no_wait();
    assert!(locks.acquire(&name("r"), tried).await.is_err());
    lease.release().await.unwrap();
    for (place, run) in waiting.iter_mut().enumerate() {
        assert_eq!(run.exit_code().await, 0);
        assert_eq!(run.event("acquired").await["token"], 34 + place);
    }
}

#[tokio::test]
async fn unreachable_redis_is_69_and_the_command_is_not_run() {
    let mut redis = Redis::start().await.unwrap();
    redis.process().kill().unwrap();
    let mut run = Run::start(&redis, &["--no-wait"], "echo it ran");
    assert_eq!(run.exit_code().await, 69);
    assert_eq!(run.event_names(), ["unavailable"]);
    assert!(run.process().line(PATIENCE).await.is_err(), "the command is not run");
    assert!(run.stderr().contains(NO_ANSWER));
}

#[tokio::test]
async fn wrong_usage_of_run_is_64() {
    let to = ["run", "r", "--locks", "redis://127.0.0.1:1"];
    let cases: [(&[&str], &str); 9] = [
        (&[], "required"),
        (&["true"], "unexpected argument"),
        (&["echo", "hi"], "write -- before it: lock-client run NAME -- COMMAND"),
        (&["--on-lost", "pray", "--", "true"], "[possible values: term, continue]"),
        (&["--ttl", "3s", "--kill-after", "1960ms", "--", "true"], "may be half of the ttl"),
        (&["--wait", "1s", "--no-wait", "--", "true"], "cannot be used with"),
        (&["--skip-if-busy", "--conflict-exit-code", "1", "--", "true"], "cannot be used with"),
        (&["--conflict-exit-code", "256", "--", "true"], "256"),
        (&["--status-fd", "987", "--", "true"], "--status-fd 987 can't be written to"),
    ];
    for (options, reason) in cases {
        assert_failed(&lock_client(&[&to[..], options].concat()).await, 64, reason);
    }
}

#[tokio::test]
async fn missing_server_is_wrong_usage_that_names_the_variable() {
    let no_locks = lock_client(&["status", "r"]).await;
    let hint = "no lock service is named: set FENCED_LOCKS, or give --locks";
    assert_failed(&no_locks, 64, hint);
    let no_storage = lock_client(&["get", "r"]).await;
    assert_failed(&no_storage, 64, "set FENCED_STORAGE, or give --storage");
    let no_handle = lock_client(&["release", "r", "--locks", "redis://127.0.0.1"]).await;
    assert_failed(&no_handle, 64, "a handle is the JSON that acquire or renew printed");
}
