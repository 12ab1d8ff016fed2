//! The entry points: the program itself, and the command inside another program.

use std::{env, ffi::OsString, io, process::ExitCode};

use clap::{
    Parser,
    error::{ContextKind, ContextValue, ErrorKind},
};
use rustix::process::{Pid, Resource, Rlimit, getpid, getrlimit, setrlimit};
use signal_hook::low_level::{emulate_default_handler, raise};
use tokio::runtime::Runtime;

use crate::{cli::Cli, exit_code, failure::Failure, handle::has_holder, stderr};

/// Runs the command with the arguments of this process.
pub fn main() -> ExitCode {
    match runtime() {
        Ok(runtime) => {
            let code = runtime.block_on(run(env::args_os()));
            // A name that is still being resolved must not hold up the end.
            runtime.shutdown_background();
            code
        }
        Err(error) => {
            exit(Err(Failure::unavailable(format!("can't start the Tokio runtime: {error}"))))
        }
    }
}

/// Makes a runtime that renews leases on a thread of its own, which the main thread can't block.
fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()
}

/// Runs the command with these arguments, of which the first is the program's name.
///
/// Another program can offer the command as a subcommand: `lab lock-client status r` passes
/// `lock-client status r`. It must wait for this on its main thread, because the child of
/// `lock-client run` dies with the thread that started it. Its runtime should have another thread, so
/// that nothing here delays a renewal. This also waits for every child that this process has.
pub async fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<_> = arguments.into_iter().collect();
    match Cli::try_parse_from(&arguments) {
        Ok(cli) => exit(cli.run().await),
        Err(error) => exit_without_command(&without_secrets(error), &arguments),
    }
}

/// Hides values that may have a secret: a handle, or a URL with a password, in the wrong place. A wrong
/// argument is printed, and what a script prints is often logged.
fn without_secrets(mut error: clap::Error) -> clap::Error {
    let hidden = || ContextValue::String("…".to_owned());
    for kind in [ContextKind::InvalidValue, ContextKind::InvalidArg, ContextKind::InvalidSubcommand]
    {
        if let Some(ContextValue::String(value)) = error.get(kind)
            && (value.contains(['"', '@']) || has_holder(value))
        {
            error.insert(kind, hidden());
            // The advice may quote it.
            error.remove(ContextKind::Suggested);
        }
    }
    error
}

/// Prints what clap says instead of running a command: what is wrong, or --help and --version.
fn exit_without_command(error: &clap::Error, arguments: &[OsString]) -> ExitCode {
    let printed = error.print();
    if !error.use_stderr() {
        // A reader such as `head` has read enough.
        let failed = printed.err().filter(|error| error.kind() != io::ErrorKind::BrokenPipe);
        return exit(failed.map_or(Ok(()), |error| Err(Failure::cannot_print(error))));
    }
    // The terminal may be gone. There is nowhere else to print.
    let unexpected = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(word)) if !word.starts_with('-') => {
            arguments.iter().position(|argument| **argument == **word)
        }
        _ => None,
    };
    if unexpected.is_some_and(|place| arguments[..place].contains(&"run".into()))
        && error.kind() == ErrorKind::UnknownArgument
        && !arguments.contains(&"--".into())
    {
        stderr::print("to run a command, write -- before it: lock-client run NAME -- COMMAND");
    }
    exit(Err(Failure::Reported(exit_code::USAGE)))
}

fn exit(result: Result<(), Failure>) -> ExitCode {
    // On the thread that a terminal can't stop, and before `flush`: nothing is printed after it.
    if let Some(message) = result.as_ref().err().and_then(Failure::message) {
        stderr::print(message);
    }
    stderr::flush();
    let Err(failure) = result else {
        return ExitCode::from(exit_code::SUCCESS);
    };
    if let Failure::Signal(signal) | Failure::Interrupted(signal) = failure {
        end_by(signal);
    }
    ExitCode::from(failure.exit_code())
}

/// Ends this process by a signal, so that its parent sees what ended the command: a shell ends its
/// script or loop only if SIGINT itself ended this process. Returns if this process is the first one
/// of a container, which Linux does not end so.
fn end_by(signal: i32) {
    if getpid() == Pid::INIT {
        return;
    }
    // If the command has left a core, another one of this process would replace it.
    let none = Rlimit { current: Some(0), maximum: getrlimit(Resource::Core).maximum };
    let _ = setrlimit(Resource::Core, none);
    if emulate_default_handler(signal).is_err() {
        // A real-time signal, for which this process has no handler.
        let _ = raise(signal);
    }
}

#[cfg(test)]
mod tests {
    use std::{thread, time::Duration};

    use lock_client::{Locks, Ttl, redis::Redis};

    use super::*;

    #[test]
    fn lease_is_renewed_while_the_main_thread_is_blocked() {
        let one_thread = tokio::runtime::Builder::new_current_thread().enable_all().build();
        // The control: on one thread, it is lost.
        for (runtime, is_renewed) in [(runtime(), true), (one_thread, false)] {
            runtime.unwrap().block_on(async {
                let redis = testbed::Redis::start().await.unwrap();
                let locks = Locks::new(Redis::open(&redis.url()).unwrap());
                let ttl = Ttl::from_secs(2).unwrap();
                let lease = locks.acquire(&"r".parse().unwrap(), ttl).await.unwrap();
                thread::sleep(Duration::from_secs(4));
                assert_eq!(lease.token().is_ok(), is_renewed);
            });
        }
    }
}
