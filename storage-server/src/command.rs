//! The command: its arguments, its log and its exit code. Each subcommand is one file.

mod audited;
mod auth;
mod backup;
mod check;
mod completions;
mod config_file;
mod doctor;
mod fence;
mod forget;
mod in_force;
mod man;
mod migrate;
mod restore;
mod serve;
mod systemd;
mod tls;

use std::{
    env,
    ffi::OsString,
    fmt::Display,
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{
    Arg, ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand,
    builder::Resettable,
    error::{ContextKind, ContextValue, ErrorKind},
    parser::ValueSource,
};

use self::{
    audited::{Action, audited},
    auth::AuthCommand,
    backup::Backup,
    completions::Completions,
    doctor::{Doctor, NotFit},
    fence::FenceCommand,
    forget::Forget,
    in_force::in_force,
    man::Man,
    migrate::{MIGRATION, migrate},
    restore::Restore,
    serve::Serve,
};
use crate::{
    causes::with_causes,
    logs::{Log, LogFormat},
};

/// An HTTP service that persists the highest fencing token per resource and rejects stale writes.
///
/// Without a subcommand, it serves.
#[derive(Debug, Parser)]
#[command(name = "storage-server", version)]
struct Arguments {
    /// The database: sqlite:FILE, postgres://USER@HOST/DATABASE, or s3://BUCKET/FOLDER?endpoint=URL.
    #[arg(
        long,
        global = true,
        env = "FENCED_DATABASE_URL",
        default_value = "sqlite:fenced.db",
        hide_env_values = true,
        value_name = "URL"
    )]
    database_url: String,

    /// The file of options, in TOML: a key is an option without its dashes. Flags and the environment
    /// win over it.
    #[arg(long, global = true, env = "FENCED_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,

    /// The file for rejections and for the actions of operators. Without it, the log on stderr has them.
    #[arg(long, global = true, env = "FENCED_AUDIT_LOG", value_name = "FILE")]
    audit_log: Option<PathBuf>,

    #[command(flatten)]
    serve: Serve,

    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Create or update the server's tables, and exit.
    Migrate,
    /// Make identities for clients.
    #[command(subcommand)]
    Auth(AuthCommand),
    /// Show or change fences in the database. Servers may run meanwhile.
    #[command(subcommand)]
    Fence(FenceCommand),
    /// Copy an SQLite database into a new file. Servers may run meanwhile.
    Backup(Backup),
    /// Put a backup in the place of an SQLite database that no server uses.
    Restore(Restore),
    /// Delete all resources whose names begin with a prefix, fences included.
    Forget(Forget),
    /// Check whether the database can lose a fence that a server has acknowledged.
    Doctor(Doctor),
    /// Print the options that are in force as a config file, without secrets.
    Config,
    /// Print a script that completes this command in a shell.
    Completions(Completions),
    /// Print the manual page.
    Man(Man),
}

impl Command {
    /// What the audit log has of it; `None` if it neither changes nor copies anything.
    fn action(&self) -> Option<Action> {
        match self {
            Self::Migrate => Some(MIGRATION),
            Self::Auth(auth) => Some(auth.action()),
            Self::Fence(fence) => fence.action(),
            Self::Backup(backup) => Some(backup.action()),
            Self::Restore(restore) => Some(restore.action()),
            Self::Forget(forget) => forget.action(),
            Self::Doctor(_) | Self::Config | Self::Completions(_) | Self::Man(_) => None,
        }
    }
}

/// Runs the command `storage-server`, and returns its exit code. Without a subcommand, it serves
/// until SIGTERM or SIGINT.
///
/// The first argument is the program's name, as in [`std::env::args_os`]. Once it listens, the
/// server prints `listening on http://ADDRESS`, or `https`, on stdout. Its log goes to stderr, unless the
/// process already has a `tracing` subscriber.
///
/// The exit code is 0 after a clean stop and after `--help`. It is 1 if the server can't start or the
/// command fails. It is 2 if an argument, a variable of the environment or the config file is wrong, or
/// if the auth file or a file of TLS is missing. `doctor` has the exit codes of doctor/README.md.
pub async fn run(arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> ExitCode {
    let matches = match parse(arguments.into_iter().map(Into::into).collect()) {
        Ok(matches) => matches,
        Err(error) => {
            // A closed stdout or stderr leaves nothing to report to.
            let _ = error.print();
            return u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from);
        }
    };
    // A build of the whole workspace has two providers of cryptography, and then no default.
    // Where a program that calls this chose one already, that one stays.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let log_format = matches.get_one::<LogFormat>("log_format").copied();
    let mut log = Log::to_stderr(log_format.expect("it has a default"));
    let ended = tokio::select! {
        ended = run_command(matches) => ended,
        never = log.report_dropped() => match never {},
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log.message(&with_causes(error.as_ref()));
            exit_code(&error)
        }
    }
}

fn exit_code(error: &anyhow::Error) -> ExitCode {
    if error.is::<MissingNamedFile>() {
        return ExitCode::from(2);
    }
    error.downcast_ref::<NotFit>().map_or(ExitCode::FAILURE, |it| ExitCode::from(it.code))
}

/// A file that an option names is missing: the option is wrong, and another try fails as well.
#[derive(Debug, thiserror::Error)]
#[error("{option} names {}, which does not exist", path.display())]
struct MissingNamedFile {
    option: &'static str,
    path: PathBuf,
}

/// Checks that the file of an option is there, or at least that this can't be ruled out.
fn require_file(option: &'static str, path: &Path) -> Result<(), MissingNamedFile> {
    match path.try_exists() {
        Ok(false) => Err(MissingNamedFile { option, path: path.to_owned() }),
        _ => Ok(()),
    }
}

/// Whether a subcommand uses an option of the server.
fn uses(subcommand: Option<&str>, option: &Arg) -> bool {
    match subcommand {
        None | Some("config") => true,
        Some("completions" | "man") => option.get_id() == "log_format",
        Some(_) => option.is_global_set() || option.get_id() == "log_format",
    }
}

/// Rejects a variable that is empty, as a template leaves it that was not filled in. An argument wins over it.
fn reject_empty_variables(
    command: &clap::Command,
    arguments: &ArgMatches,
) -> Result<(), clap::Error> {
    let is_argument = |option: &&Arg| {
        arguments.value_source(option.get_id().as_str()) == Some(ValueSource::CommandLine)
    };
    let options = command.get_arguments().filter(|option| !is_argument(option));
    let is_empty = |name: &_| env::var_os(name).is_some_and(|value| value.is_empty());
    match options.filter_map(Arg::get_env).find(is_empty) {
        None => Ok(()),
        Some(name) => {
            let name = name.display();
            let message = format!("the variable {name} is empty: give it a value, or unset it\n");
            Err(clap::Error::raw(ErrorKind::InvalidValue, message))
        }
    }
}

/// Names the variable whose value is wrong. clap names only its option.
fn name_variable(error: clap::Error, command: &clap::Command) -> clap::Error {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.as_str(),
        _ => "",
    };
    let (option, value) = (context(ContextKind::InvalidArg), context(ContextKind::InvalidValue));
    let is_wrong = |it: &&Arg| it.to_string() == option;
    let variable = command.get_arguments().find(is_wrong).and_then(Arg::get_env);
    match variable.filter(|name| env::var_os(name).is_some_and(|it| it == value)) {
        None => error,
        Some(name) => {
            let (name, reason) = (name.display(), reason(&error));
            let message = format!("the variable {name} can't be used: {reason}\n");
            clap::Error::raw(error.kind(), message)
        }
    }
}

/// The reason of an error of clap in one line, without its advice.
fn reason(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let (reason, _advice) = text.split_once("\n\n").unwrap_or((text, ""));
    reason.lines().map(str::trim).collect::<Vec<_>>().join(" ")
}

/// Parses the arguments, after those of the config file that they or the environment name.
fn parse(mut arguments: Vec<OsString>) -> Result<ArgMatches, clap::Error> {
    let command = Arguments::command();
    // 1. Look for --help, the subcommand and the config file. An argument may need another one of that
    //    file, so a mistake is found below.
    let early = command.clone().ignore_errors(true).try_get_matches_from(&arguments)?;
    // 2. Read the variables of what the subcommand uses, and no others.
    let subcommand = early.subcommand_name();
    let with_variables = command.clone().mut_args(|option| match uses(subcommand, &option) {
        true => option,
        false => option.env(Resettable::Reset),
    });
    reject_empty_variables(&with_variables, &early)?;
    // 3. Put the config file before the arguments, which win over it.
    if let Some(path) = early.get_one::<PathBuf>("config") {
        let program = 1.min(arguments.len());
        arguments.splice(program..program, config_file::read(path, &command)?);
    }
    // This also completes the command, which must be complete to show its options.
    let mut command = with_variables.args_override_self(true);
    let parsed = command.try_get_matches_from_mut(arguments);
    parsed.map_err(|error| name_variable(error, &command))
}

async fn run_command(matches: ArgMatches) -> anyhow::Result<()> {
    let Arguments { database_url, config: _, audit_log, serve, command } =
        Arguments::from_arg_matches(&matches)?;
    let Some(command) = command else {
        return serve.run(&database_url, audit_log.as_deref()).await;
    };
    let action = command.action();
    let run = run_subcommand(command, &database_url, &matches);
    match action {
        Some(action) => audited(audit_log.as_deref(), &action, run).await,
        None => run.await,
    }
}

async fn run_subcommand(
    command: Command,
    database_url: &str,
    matches: &ArgMatches,
) -> anyhow::Result<()> {
    match command {
        Command::Migrate => migrate(database_url).await,
        Command::Auth(auth) => auth.run(),
        Command::Fence(fence) => fence.run(database_url).await,
        Command::Backup(backup) => backup.run(database_url).await,
        Command::Restore(restore) => restore.run(database_url).await,
        Command::Forget(forget) => forget.run(database_url).await,
        Command::Doctor(doctor) => doctor.run(database_url).await,
        Command::Config => print_text(&in_force(&Arguments::command(), matches)?),
        Command::Completions(completions) => completions.run(Arguments::command()),
        Command::Man(man) => man.run(Arguments::command()),
    }
}

/// Prints text that is the command's whole purpose.
fn print_text(text: &str) -> anyhow::Result<()> {
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}

/// Prints a line. A change that was made stays made, even if nobody reads of it.
fn print(line: impl Display) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    const README: &str = include_str!("../README.md");

    #[test]
    fn readme_lists_every_option() {
        let command = Arguments::command();
        for option in command.get_arguments().filter(|option| option.get_env().is_some()) {
            let value = if option.get_action().takes_values() { " " } else { "`" };
            let name = format!("`--{}{value}", option.get_long().unwrap());
            let variable = option.get_env().unwrap().to_str().unwrap();
            let row = README.lines().find(|line| line.starts_with('|') && line.contains(&name));
            assert!(row.is_some_and(|row| row.contains(variable)), "{name} {variable}");
        }
    }

    #[test]
    fn readme_lists_every_command_with_its_options() {
        let mut commands = vec![("storage-server".to_owned(), Arguments::command())];
        while let Some((name, command)) = commands.pop() {
            if !command.has_subcommands() {
                let row = README.lines().find(|line| line.starts_with(&format!("| `{name}")));
                let row = row.unwrap_or_else(|| panic!("{name} has no row"));
                for option in command.get_arguments().filter_map(|option| option.get_long()) {
                    assert!(row.contains(&format!("--{option}")), "{name} --{option}");
                }
            }
            let subcommands = command.get_subcommands();
            commands
                .extend(subcommands.map(|it| (format!("{name} {}", it.get_name()), it.clone())));
        }
    }
}
