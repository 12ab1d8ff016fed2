//! The commands on each lock service. The checks are written once.

use std::{collections::HashSet, path::Path, time::Duration};

use lock_client::{Locks, Ttl, backend::Backend, etcd::Etcd, zookeeper::ZooKeeper};
use serde_json::Value;
use testbed::{process::Process, wait::until_async};
use tokio::time::sleep;

use crate::{
    command::{
        BUSY, PATIENCE, Run, assert_failed, command, events, lock_client, output, without_terminal,
    },
    programs::LOCK_CLIENT,
    services::Service,
};

/// Runs every check on one server of a kind. Each check has locks of its own.
async fn check_commands(service: Service) {
    let on = On(&service);
    on.check_commands_in_no_order().await;
    on.fair_waiter_gets_the_lock_after_its_release().await;
}

#[tokio::test]
async fn commands_work_on_redis() {
    check_commands(Service::redis().await).await;
}

/// Redlock has no fair order.
#[tokio::test]
async fn commands_work_on_redlock() {
    On(&Service::redlock().await).check_commands_in_no_order().await;
}

#[tokio::test]
async fn commands_work_on_etcd() {
    check_commands(Service::etcd().await).await;
}

/// A reissue of the name has raised the offset, for ever. So tokens differ from grants from then on.
async fn run_re_enters_after_a_reissue_of_the_name(service: Service, backend: impl Backend) {
    let locks = Locks::new(backend);
    let name = "nested".parse().unwrap();
    let ttl = Ttl::new(PATIENCE).unwrap();
    let lease = locks.acquire(&name, ttl).await.unwrap();
    let token = lease.token().unwrap();
    lease.reissue(token).await.unwrap();
    lease.release().await.unwrap();
    On(&service).run_of_the_same_name_re_enters().await;
}

#[tokio::test]
async fn run_re_enters_after_a_reissue_of_the_name_on_etcd() {
    let service = Service::etcd().await;
    let backend = Etcd::open(&service.url).unwrap();
    run_re_enters_after_a_reissue_of_the_name(service, backend).await;
}

#[tokio::test]
async fn run_re_enters_after_a_reissue_of_the_name_on_zookeeper() {
    let service = Service::zookeeper().await;
    let backend = ZooKeeper::open(&service.url).unwrap();
    run_re_enters_after_a_reissue_of_the_name(service, backend).await;
}

#[tokio::test]
async fn commands_work_on_zookeeper() {
    check_commands(Service::zookeeper().await).await;
}

/// Etcd skips it after 15 seconds.
#[tokio::test]
async fn fair_waiter_whose_process_was_killed_is_skipped_on_etcd() {
    On(&Service::etcd().await).fair_waiter_whose_process_was_killed_is_skipped("10m").await;
}

/// ZooKeeper skips it when its ttl ends.
#[tokio::test]
async fn fair_waiter_whose_process_was_killed_is_skipped_on_zookeeper() {
    On(&Service::zookeeper().await).fair_waiter_whose_process_was_killed_is_skipped("8s").await;
}

#[tokio::test]
async fn commands_work_on_postgres() {
    check_commands(Service::postgres().await).await;
}

#[tokio::test]
async fn commands_work_on_mariadb() {
    check_commands(Service::mariadb().await).await;
}

#[tokio::test]
async fn commands_work_on_sqlite() {
    check_commands(Service::sqlite().await).await;
}

/// The checks on a lock service.
struct On<'a>(&'a Service);

impl On<'_> {
    async fn check_commands_in_no_order(&self) {
        self.handle_passes_a_lock_from_one_process_to_the_next().await;
        self.run_hands_out_growing_tokens_and_the_exit_code().await;
        self.run_of_the_same_name_re_enters().await;
        self.broken_lock_ends_its_command().await;
        self.watch_prints_each_grant_and_release().await;
        self.names_of_all_kinds_are_locks_of_their_own().await;
        self.list_prints_the_locks_that_are_held().await;
        #[cfg(target_os = "linux")]
        self.held_lock_needs_no_more_open_files().await;
    }

    /// Runs the command, with a subcommand and its arguments, to its end.
    async fn output(&self, arguments: &[&str]) -> std::process::Output {
        let options = ["--locks", &self.0.url, "--answer-timeout", "2s"];
        lock_client(&[&arguments[..1], &options, &arguments[1..]].concat()).await
    }

    /// The events that a command prints which succeeds.
    async fn printed(&self, arguments: &[&str]) -> Vec<Value> {
        let output = self.output(arguments).await;
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {output:?}");
        events(&output)
    }

    async fn status(&self, lock: &str) -> Value {
        self.printed(&["status", lock]).await.remove(0)
    }

    async fn until_held(&self, lock: &str) {
        let held = async || Ok(self.status(lock).await["held"] == true);
        until_async(PATIENCE, held).await.unwrap();
    }

    async fn handle_passes_a_lock_from_one_process_to_the_next(&self) {
        let handle = self.printed(&["acquire", "handed", "--ttl", "60s"]).await.remove(0);
        let state = self.status("handed").await;
        assert_eq!((&state["held"], &state["token"]), (&true.into(), &handle["token"]));
        let left = state["remaining_ms"].as_u64().unwrap();
        assert!((30_000..=61_000).contains(&left), "{left} ms");
        // Redlock, named by several URLs, has no labels either.
        let url = &self.0.url;
        if !url.contains(' ') && !url.starts_with("etcd:") && !url.starts_with("zookeeper:") {
            assert!(state["label"].as_str().unwrap().contains("(pid "), "{state}");
        }
        let busy = self.output(&["acquire", "handed", "--no-wait"]).await;
        assert_failed(&busy, 75, BUSY);

        // For longer, and then for less.
        for (ttl, ttl_ms) in [("10m", 600_000), ("30s", 30_000)] {
            let renewed = self.printed(&["renew", &handle.to_string(), "--ttl", ttl]).await;
            for field in ["name", "token", "holder", "grant"] {
                assert_eq!(renewed[0][field], handle[field]);
            }
            assert_eq!(renewed[0]["ttl_ms"], ttl_ms);
        }
        self.printed(&["release", &handle.to_string()]).await;
        let state = self.status("handed").await;
        assert_eq!((&state["held"], &state["token"]), (&false.into(), &Value::Null));
        // The control: a handle opens one ownership, and no later one.
        let next = self.printed(&["acquire", "handed", "--ttl", "60s"]).await.remove(0);
        assert!(next["token"].as_u64() > handle["token"].as_u64(), "{next} follows {handle}");
        for command in ["renew", "release"] {
            let lost = self.output(&[command, &handle.to_string()]).await;
            assert_failed(&lost, 79, "the lease of lock `handed` is lost");
        }
        assert_eq!(self.status("handed").await["token"], next["token"]);
    }

    async fn run_hands_out_growing_tokens_and_the_exit_code(&self) {
        let mut last = 0_u64;
        for _ in 0..3 {
            let script = "echo $FENCING_TOKEN; exit 7";
            let run = self.output(&["run", "job", "--", "sh", "-c", script]).await;
            assert_eq!(run.status.code(), Some(7), "{run:?}");
            let token = String::from_utf8(run.stdout).unwrap().trim().parse().unwrap();
            assert!(token > last, "{token} follows {last}");
            last = token;
        }
        assert_eq!(self.status("job").await["held"], false);
    }

    /// The inner command runs in another folder, and finds the lock service in its environment.
    async fn run_of_the_same_name_re_enters(&self) {
        let script = r#"cd /; echo $FENCING_TOKEN; "$0" run nested --no-wait -- sh -c 'echo $FENCING_TOKEN'
            "$0" acquire nested --no-wait; echo $?"#;
        let run = self.output(&["run", "nested", "--", "sh", "-c", script, LOCK_CLIENT]).await;
        assert_eq!(run.status.code(), Some(0), "{run:?}");
        let lines = String::from_utf8(run.stdout).unwrap();
        let [outer, inner, code] = lines.lines().collect::<Vec<_>>().try_into().unwrap();
        assert_eq!((outer, code), (inner, "64"), "the lock of an outer run can't be acquired");
    }

    async fn fair_waiter_gets_the_lock_after_its_release(&self) {
        let handle = self.printed(&["acquire", "fair", "--ttl", "60s"]).await.remove(0);
        let mut waiter = command(&["run", "fair", "--fair", "--wait", "40s"]);
        waiter.args(["--locks", &self.0.url, "--", "echo", "it ran"]);
        let waiting = tokio::spawn(output(waiter));
        let queued = async || Ok(self.status("fair").await["queued"] == 1);
        until_async(PATIENCE, queued).await.unwrap();
        self.printed(&["release", &handle.to_string()]).await;
        let ran = waiting.await.unwrap();
        assert_eq!(ran.stdout, b"it ran\n", "{ran:?}");
    }

    async fn fair_waiter_whose_process_was_killed_is_skipped(&self, ttl: &str) {
        let handle = self.printed(&["acquire", "fair", "--ttl", "60s"]).await.remove(0);
        let (folder, url) = (tempfile::tempdir().unwrap(), &self.0.url);
        let until_queued = async |number: u64| {
            let queued = async || Ok(self.status("fair").await["queued"] == number);
            until_async(PATIENCE, queued).await.unwrap();
        };
        let waiter = |program: &str| {
            let mut waiter = without_terminal(LOCK_CLIENT);
            waiter.args(["run", "fair", "--fair", "--ttl", ttl, "--locks", url, "--"]);
            waiter.args(["echo", program]);
            Process::spawn(program, &waiter, folder.path()).unwrap()
        };
        let mut killed = waiter("killed");
        until_queued(1).await;
        let mut next = waiter("next");
        until_queued(2).await;
        killed.kill().unwrap();
        assert_eq!(self.status("fair").await["queued"], 2, "the control: it has its place");
        self.printed(&["release", &handle.to_string()]).await;
        assert_eq!(next.line(2 * PATIENCE).await.unwrap(), "next");
        assert_eq!(next.exit(PATIENCE).await.unwrap().code(), Some(0));
        assert_eq!(self.status("fair").await["queued"], 0);
    }

    async fn broken_lock_ends_its_command(&self) {
        let folder = tempfile::tempdir().unwrap();
        let mut run = without_terminal(LOCK_CLIENT);
        run.args(["run", "left", "--ttl", "15s", "--locks", &self.0.url, "--", "sleep", "600"]);
        let mut run = Process::spawn("run", &run, folder.path()).unwrap();
        self.until_held("left").await;
        let token = self.status("left").await["token"].as_u64().unwrap();
        // The control: a token that is not the holder's frees nothing.
        let other = (token + 1).to_string();
        let busy = self.output(&["break", "left", "--token", &other]).await;
        assert_failed(&busy, 75, &format!("lock `left` has another token: {token}"));
        self.printed(&["break", "left", "--token", &token.to_string()]).await;
        assert_eq!(self.status("left").await["held"], false);
        assert_eq!(run.exit(PATIENCE).await.unwrap().code(), Some(79));
    }

    /// Each connection and each file that a renewal needs is open before the grant is reported. So a command that may
    /// open no file holds its lock for three ttls.
    #[cfg(target_os = "linux")]
    async fn held_lock_needs_no_more_open_files(&self) {
        use rustix::process::{Resource, Rlimit, getrlimit, prlimit};

        let url = &self.0.url;
        let mut run = Run::start_at(url, &["--ttl", "3s"], "echo held; read line", &[]);
        assert_eq!(run.line().await, "held");
        let pid = Some(run.process().pid());
        let limit = getrlimit(Resource::Nofile);
        prlimit(pid, Resource::Nofile, Rlimit { current: Some(0), ..limit }).unwrap();
        sleep(Duration::from_secs(9)).await;
        assert_eq!(self.status("r").await["held"], true, "{url}");
        // In the end, it reads in /proc which processes the command has left.
        prlimit(pid, Resource::Nofile, limit).unwrap();
        run.continue_script();
        assert_eq!(run.exit_code().await, 0, "{url}: {:?}", run.events());
    }

    async fn watch_prints_each_grant_and_release(&self) {
        let folder = tempfile::tempdir().unwrap();
        let mut watch = without_terminal(LOCK_CLIENT);
        watch.args(["watch", "watched", "--locks", &self.0.url]);
        let mut watch = Process::spawn("watch", &watch, folder.path()).unwrap();
        let mut token = async || {
            let line = watch.line(PATIENCE).await.unwrap();
            serde_json::from_str::<Value>(&line).unwrap()["token"].clone()
        };
        assert_eq!(token().await, Value::Null);
        let handle = self.printed(&["acquire", "watched", "--ttl", "60s"]).await.remove(0);
        assert_eq!(token().await, handle["token"]);
        self.printed(&["release", &handle.to_string()]).await;
        assert_eq!(token().await, Value::Null);
    }

    async fn list_prints_the_locks_that_are_held(&self) {
        let listed = async |prefix: &str| {
            let states = self.printed(&["list", prefix]).await;
            assert!(states.iter().all(|state| state["held"] == true), "{states:?}");
            let names = states.iter().map(|state| state["name"].as_str().unwrap().to_owned());
            names.collect::<Vec<_>>()
        };
        let names = ["list/%/1", "list/%/2", "list/%", "list/%0", "list/ü"];
        for name in names {
            self.printed(&["acquire", name, "--ttl", "60s"]).await;
        }
        let free = self.printed(&["acquire", "list/%/0", "--ttl", "60s"]).await;
        self.printed(&["release", &free[0].to_string()]).await;
        assert_eq!(listed("list/%/").await, ["list/%/1", "list/%/2"]);
        assert_eq!(listed("list/ü").await, ["list/ü"]);
        assert_eq!(listed("list/_/").await.len(), 0);
        assert_eq!(listed("list/").await.len(), names.len());
        let all: HashSet<_> = listed("").await.into_iter().collect();
        assert!(names.iter().all(|name| all.contains(*name)), "{all:?}");
    }

    async fn names_of_all_kinds_are_locks_of_their_own(&self) {
        let long = "ü".repeat(256);
        let names =
            ["a/b", "a%2Fb", "a.b", "a b", "100%", "a_b", "Größe/ÄÖ", "größe/ÄÖ", "'\"\\", &long];
        let mut handles = Vec::new();
        for name in names {
            let handle = self.printed(&["acquire", name, "--no-wait", "--ttl", "60s"]).await;
            assert_eq!(handle[0]["name"], name);
            handles.push(handle[0].to_string());
        }
        for (name, handle) in names.into_iter().zip(handles) {
            assert_eq!(self.status(name).await["held"], true, "{name}");
            self.printed(&["release", &handle]).await;
            assert_eq!(self.status(name).await["held"], false, "{name}");
        }
        let longer = "n".repeat(513);
        let rejected = self.output(&["acquire", &longer]).await;
        assert_failed(&rejected, 64, "512");
    }
}

#[tokio::test]
async fn relative_file_is_found_from_another_folder() {
    let service = Service::sqlite().await;
    let file = Path::new(service.url.strip_prefix("sqlite:").unwrap());
    let script = r#"cd /; "$0" status r"#;
    let mut run = command(&["run", "r", "--locks", "sqlite:locks.db", "--", "sh", "-c", script]);
    run.arg(LOCK_CLIENT).current_dir(file.parent().unwrap());
    let run = output(run).await;
    assert_eq!(run.status.code(), Some(0), "{run:?}");
    assert_eq!(events(&run)[0]["held"], true);
}
