//! The command `lock-client` as a subcommand of another program.

use std::time::Duration;

use serde_json::json;
use testbed::{
    Redis,
    process::{Process, lives},
    wait::until,
};

use crate::{
    command::{events, output, without_terminal},
    programs::COMMAND_HOST,
};

const PATIENCE: Duration = Duration::from_secs(20);
const SUBCOMMAND: [&str; 2] = ["hidden", "lock-client"];

#[tokio::test]
async fn subcommand_of_another_program_is_the_command() {
    let redis = Redis::start().await.unwrap();
    let mut command = without_terminal(COMMAND_HOST);
    command.args(SUBCOMMAND).args(["status", "r", "--locks", &redis.url()]);
    let [status] = events(&output(command).await).try_into().unwrap();
    assert_eq!((&status["name"], &status["held"]), (&json!("r"), &json!(false)));

    let mut command = without_terminal(COMMAND_HOST);
    command.args(SUBCOMMAND).args(["run", "r", "--locks", &redis.url()]);
    command.args(["--", "sh", "-c", "echo $FENCING_RESOURCE; exit 7"]);
    let run = output(command).await;
    assert_eq!((run.status.code(), run.stdout.as_slice()), (Some(7), b"r\n".as_slice()), "{run:?}");
}

#[tokio::test]
async fn command_of_run_dies_with_the_other_program() {
    let redis = Redis::start().await.unwrap();
    let mut command = without_terminal(COMMAND_HOST);
    command.args(SUBCOMMAND).args(["run", "r", "--locks", &redis.url()]);
    command.args(["--", "sh", "-c", "echo $$; read go"]);
    let folder = tempfile::tempdir().unwrap();
    let mut host = Process::spawn("host", &command, folder.path()).unwrap();
    let child = host.line(PATIENCE).await.unwrap().parse().unwrap();
    assert!(lives(child));
    host.kill().unwrap();
    until(PATIENCE, || Ok(!lives(child))).await.unwrap();
}
