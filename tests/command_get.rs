//! `lock-client get`, and the command's own help.

use std::process::Stdio;

use serde_json::json;
use testbed::{Redis, StorageServer};

use crate::programs::storage_server;
use crate::{
    command::{assert_failed, command, events, lock_client, output},
    wire::request,
};

#[tokio::test]
async fn get_prints_the_value_as_it_is() {
    let storage = StorageServer::start(&storage_server(), &[]).await.unwrap();
    let url = storage.url();
    let get = |options: &'static [&str]| async move {
        lock_client(&[&["get", "orders/42", "--storage", url], options].concat()).await
    };
    let missing = get(&[]).await;
    assert_failed(&missing, 66, "resource `orders/42` has no value");
    assert!(missing.stdout.is_empty());

    let headers = [("Fencing-Token", "34"), ("Content-Type", "text/plain")];
    request(url, "PUT", "/v1/resources/orders/42", &headers, "żółw, and no line end").await;
    let got = get(&[]).await;
    assert_eq!(
        (got.status.code(), got.stdout.as_slice()),
        (Some(0), "żółw, and no line end".as_bytes())
    );
    let expected = json!({
        "resource": "orders/42", "version": 1, "token": 34, "content_type": "text/plain",
        "value": "żółw, and no line end",
    });
    assert_eq!(events(&get(&["--json"]).await), [expected]);

    // Bytes are printed as they are, except in JSON.
    request(url, "PUT", "/v1/resources/orders/42", &headers, b"\xff\0\n").await;
    assert_eq!(get(&[]).await.stdout, b"\xff\0\n");
    let [got] = events(&get(&["--json"]).await).try_into().unwrap();
    assert_eq!((&got["value_base64"], &got["version"]), (&json!("/wAK"), &json!(2)));
    assert!(got.get("value").is_none());
}

#[tokio::test]
async fn get_from_no_storage_is_69() {
    let unreachable = lock_client(&["get", "r", "--storage", "http://127.0.0.1:1"]).await;
    assert_failed(&unreachable, 69, "the storage is unavailable");
    assert_failed(&lock_client(&["get", "r"]).await, 64, "--storage");
}

#[tokio::test]
async fn output_that_cannot_be_printed_is_74() {
    let redis = Redis::start().await.unwrap();
    let storage = StorageServer::start(&storage_server(), &[]).await.unwrap();
    let headers = [("Fencing-Token", "34")];
    request(storage.url(), "PUT", "/v1/resources/r", &headers, "x").await;
    let url = redis.url();
    let commands: [&[&str]; 7] = [
        &["get", "r", "--storage", storage.url()],
        &["get", "r", "--json", "--storage", storage.url()],
        &["status", "r", "--locks", &url],
        &["doctor", "--locks", &url],
        &["doctor", "--json", "--locks", &url],
        &["completions", "bash"],
        &["man"],
    ];
    for arguments in commands {
        let (reader, stdout) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = command(arguments);
        command.stdout(stdout).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        let output =
            tokio::task::spawn_blocking(move || child.wait_with_output().unwrap()).await.unwrap();
        assert_failed(&output, 74, "can't print: Broken pipe");
    }
}

#[tokio::test]
async fn completions_and_manual_pages_know_the_commands() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let output = lock_client(&["completions", shell]).await;
        let script = String::from_utf8(output.stdout).unwrap();
        assert!(script.contains("on-lost") && script.contains("release"), "{shell}");
    }
    assert_failed(&lock_client(&["completions", "abacus"]).await, 64, "abacus");

    let page = String::from_utf8(lock_client(&["man"]).await.stdout).unwrap();
    assert!(
        page.contains(".TH lock-client 1") && page.contains("lock\\-client\\-run(1)"),
        "{page}"
    );
    let page = String::from_utf8(lock_client(&["man", "run"]).await.stdout).unwrap();
    assert!(page.contains(".TH lock-client-run 1") && page.contains("FENCING_TOKEN"), "{page}");
    assert!(page.contains(concat!("\"lock-client-run ", env!("CARGO_PKG_VERSION"))), "{page}");
    assert!(page.contains("\n  64  wrong usage\n  69  "), "a line each: {page}");
    assert_failed(&lock_client(&["man", "abacus"]).await, 64, "no command of this name");
}

#[tokio::test]
async fn bash_completes_the_options_of_a_command() {
    // What bash does on the tab key after these words.
    let complete = r#"eval "$("$0" completions bash)"
        COMP_WORDS=(lock-client "$@"); COMP_CWORD=$#
        function_of=$(complete -p lock-client); function_of=${function_of#*-F }
        "${function_of%% *}" lock-client "${!#}"
        echo "${COMPREPLY[@]}""#;
    for (words, expected) in [
        (&["ru"][..], "run\n"),
        (&["run", "x", "--on"], "--on-lost\n"),
        (&["get", "x", "--j"], "--json\n"),
        (&["help", "relea"], "release\n"),
        (&["man", "relea"], "release\n"),
    ] {
        let mut bash = std::process::Command::new("bash");
        bash.args(["--norc", "-c", complete]).arg(command(&[]).get_program()).args(words);
        let output = output(bash).await;
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{words:?}: {output:?}");
    }
}

#[tokio::test]
async fn every_exit_code_is_in_the_help() {
    let help = String::from_utf8(lock_client(&["--help"]).await.stdout).unwrap();
    for code in ["0", "1", "64", "66", "69", "74", "75", "79", "80", "126", "127", "128+n"] {
        let listed = help.lines().any(|line| line.trim_start().starts_with(&format!("{code}  ")));
        assert!(listed, "{code} is in {help}");
    }
    let help = String::from_utf8(lock_client(&["run", "--help"]).await.stdout).unwrap();
    for fact in ["lives on", "The token is what protects", "redis+sentinel://", "128+n"] {
        assert!(help.contains(fact), "{fact:?} is in {help}");
    }
}
