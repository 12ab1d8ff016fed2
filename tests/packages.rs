//! The packages for Python and Node: installed as their READMEs say, and tested by their own tests
//! on a real PostgreSQL.

mod database;
mod leases;
mod node;
mod python;

use std::process::Command;

use self::database::Database;
use crate::languages::output;

/// Runs a package's tests on a database of their own, and returns what they print.
async fn passes(mut tests: Command) -> String {
    let database = Database::start().await;
    for (variable, url) in database.urls() {
        tests.env(variable, url);
    }
    let output = output(tests).await;
    let text = [output.stdout, output.stderr]
        .map(|text| String::from_utf8_lossy(&text).into_owned())
        .concat();
    assert!(output.status.success(), "{text}");
    assert!(database.has_lost_an_answer(), "{text}");
    text
}

/// Runs a command that must succeed.
async fn succeed(command: Command) {
    let output = output(command).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
