//! The entry points: the program itself, and the command inside another program.

use std::{
    env,
    ffi::OsString,
    io::{self, Write},
    process::ExitCode,
};

use clap::Parser;
use signal_hook::{consts::SIGINT, low_level::emulate_default_handler};

#[cfg(target_os = "linux")]
use crate::run::Launched;
use crate::{cli::Cli, exit_code, failure::Failure};

/// Runs the command with the arguments of this process.
pub async fn main() -> ExitCode {
    run(env::args_os()).await
}

/// Runs the command with these arguments, of which the first is the program's name.
///
/// Another program can offer the command as a subcommand: `lab lock-client status r` passes
/// `lock-client status r`. It must pass all arguments that follow the subcommand's name, as they
/// are and without other checks: `lock-client run` starts the same executable again with the same
/// subcommand, to launch its child. It must wait for this on its main thread, because the child
/// dies with the thread that started it.
pub async fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<_> = arguments.into_iter().collect();
    #[cfg(target_os = "linux")]
    if let Some(launched) = Launched::parse(&arguments) {
        return exit(launched.execute());
    }
    let process_arguments: Vec<_> = env::args_os().collect();
    let leading = leading_arguments(&process_arguments, &arguments);
    match Cli::try_parse_from(&arguments) {
        Ok(cli) => exit(cli.run(leading).await),
        Err(error) => exit_wrong_usage(&error),
    }
}

/// Finds the arguments of this process before those of the command. There are some if another
/// program runs the command as a subcommand.
fn leading_arguments<'a>(process: &'a [OsString], command: &[OsString]) -> &'a [OsString] {
    let command = command.get(1..).unwrap_or_default();
    let leading = process.strip_suffix(command).unwrap_or_default();
    leading.get(1..).unwrap_or_default()
}

fn exit_wrong_usage(error: &clap::Error) -> ExitCode {
    // The terminal may be gone. There is nowhere else to print.
    let _ = error.print();
    // --help and --version are errors to clap as well, and go to stdout.
    ExitCode::from(if error.use_stderr() { exit_code::USAGE } else { exit_code::SUCCESS })
}

fn exit(result: Result<(), Failure>) -> ExitCode {
    let Err(failure) = result else {
        return ExitCode::from(exit_code::SUCCESS);
    };
    if let Some(message) = failure.message() {
        // If stderr is closed, the exit code must still be right.
        let _ = writeln!(io::stderr(), "lock-client: {message}");
    }
    if matches!(failure, Failure::Interrupted) {
        // A shell ends its script or loop only if SIGINT itself ended this process.
        let _ = emulate_default_handler(SIGINT);
    }
    ExitCode::from(failure.exit_code())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leading(process: &[&str], command: &[&str]) -> Vec<OsString> {
        let [process, command] = [process, command]
            .map(|words| words.iter().map(OsString::from).collect::<Vec<OsString>>());
        leading_arguments(&process, &command).to_vec()
    }

    #[test]
    fn arguments_of_another_program_lead_to_the_command() {
        let own = ["/bin/lock-client", "status", "r"];
        assert!(leading(&own, &own).is_empty());
        let other = ["/bin/lab", "--quiet", "lock-client", "status", "r"];
        assert_eq!(leading(&other, &other[2..]), ["--quiet", "lock-client"]);
        assert!(leading(&["/bin/lab", "replay"], &other[2..]).is_empty(), "not its arguments");
        assert!(leading(&[], &[]).is_empty());
    }
}
