//! The config file. Its keys are the server's options.

use std::{env, ffi::OsString, fs, path::Path};

use clap::{
    Arg, Command,
    builder::Resettable,
    error::{Error, ErrorKind},
};
use toml::Value;

use super::reason;
use crate::toml_error::line_and_message;

/// The options of the server that are not settings.
const NOT_IN_THE_FILE: [&str; 4] = ["check", "config", "help", "version"];
/// How similar a known key must be to an unknown one, from 0 to 1.
const SIMILAR: f64 = 0.8;

/// The options that a config file may set, which are those of serving.
pub(super) fn settings(command: &Command) -> impl Iterator<Item = (&str, &Arg)> {
    let named = command.get_arguments().filter_map(|option| Some((option.get_long()?, option)));
    named.filter(|(key, _)| !NOT_IN_THE_FILE.contains(key))
}

/// Reads a config file as arguments, which belong before those of the command line: the last one of
/// an option is in force. Leaves out what the environment sets.
///
/// # Errors
/// If the file can't be read, has a key that is no option, or a value that its option does not take.
pub(super) fn read(path: &Path, command: &Command) -> Result<Vec<OsString>, Error> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string());
    let arguments = text.and_then(|text| parse(&text, command));
    let arguments = arguments.map_err(|reason| {
        let path = path.display();
        let message = format!("the config file {path} can't be used: {reason}\n");
        Error::raw(ErrorKind::InvalidValue, message)
    })?;
    let set_in_environment =
        |option: &Arg| option.get_env().is_some_and(|name| env::var_os(name).is_some());
    let arguments = arguments.into_iter().filter(|(option, _)| !set_in_environment(option));
    Ok(arguments.map(|(_, argument)| argument.into()).collect())
}

fn parse<'c>(text: &str, command: &'c Command) -> Result<Vec<(&'c Arg, String)>, String> {
    let table: toml::Table =
        toml::from_str(text).map_err(|error| line_and_message(text, &error))?;
    let mut arguments = Vec::new();
    let mut mistakes = Vec::new();
    for (key, value) in &table {
        match argument(key, value, command) {
            Ok(argument) => arguments.extend(argument),
            Err(mistake) => mistakes.push(mistake),
        }
    }
    if !mistakes.is_empty() {
        return Err(mistakes.join("; "));
    }
    check_values(&arguments, command)?;
    Ok(arguments)
}

/// The argument that a key and its value are. `None` for a flag that is not set.
fn argument<'c>(
    key: &str,
    value: &Value,
    command: &'c Command,
) -> Result<Option<(&'c Arg, String)>, String> {
    let Some((_, option)) = settings(command).find(|(known, _)| *known == key) else {
        return Err(unknown(key, command));
    };
    let is_flag = !option.get_action().takes_values();
    let argument = match value {
        Value::Boolean(set) if is_flag => return Ok(set.then(|| (option, format!("--{key}")))),
        Value::String(text) if !is_flag => format!("--{key}={text}"),
        Value::Integer(_) | Value::Float(_) if !is_flag => format!("--{key}={value}"),
        _ => {
            let taken = if is_flag { "true or false" } else { "a string or a number" };
            return Err(format!("{key} takes {taken}, and this is of type {}", value.type_str()));
        }
    };
    Ok(Some((option, argument)))
}

fn unknown(key: &str, command: &Command) -> String {
    let similarity = |known: &str| strsim::jaro(known, key);
    let nearest = settings(command)
        .map(|(known, _)| known)
        .max_by(|a, b| similarity(a).total_cmp(&similarity(b)))
        .filter(|nearest| similarity(nearest) > SIMILAR);
    match nearest {
        Some(nearest) => format!("there is no key {key:?}, but there is {nearest:?}"),
        None => format!("there is no key {key:?}"),
    }
}

/// Lets the options themselves check their values, so that an error names the file. An option may need
/// another, which the command line may have.
fn check_values(arguments: &[(&Arg, String)], command: &Command) -> Result<(), String> {
    let without_environment = command.clone().mut_args(|option| option.env(Resettable::Reset));
    let arguments = arguments.iter().map(|(_, argument)| argument.as_str());
    let arguments = [command.get_name()].into_iter().chain(arguments);
    match without_environment.try_get_matches_from(arguments) {
        Err(error) if error.kind() != ErrorKind::MissingRequiredArgument => Err(reason(&error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use clap::ArgAction;

    use super::*;

    fn command() -> Command {
        let flag = Arg::new("flag").long("quick-start").action(ArgAction::SetTrue);
        let number = Arg::new("number").long("max-bytes").value_parser(clap::value_parser!(u32));
        let check = Arg::new("check").long("check").action(ArgAction::SetTrue);
        let first = Arg::new("first").long("first").requires("flag");
        Command::new("program").args([flag, number, check, first])
    }

    fn parsed(text: &str) -> Result<Vec<String>, String> {
        let command = command();
        let arguments = parse(text, &command)?;
        Ok(arguments.into_iter().map(|(_, argument)| argument).collect())
    }

    #[test]
    fn keys_are_options() {
        let text = "quick-start = true\nmax-bytes = 5\n";
        assert_eq!(parsed(text).unwrap(), ["--max-bytes=5", "--quick-start"]);
        assert_eq!(parsed("quick-start = false").unwrap(), <[&str; 0]>::default());
        // A value that looks like an option is none.
        assert_eq!(parsed("first = '--check'").unwrap(), ["--first=--check"]);
    }

    #[test]
    fn wrong_files_are_rejected_with_the_key() {
        for (text, reason) in [
            ("max-byte = 5", "there is no key \"max-byte\", but there is \"max-bytes\""),
            ("max_bytes = 5", "there is no key \"max_bytes\", but there is \"max-bytes\""),
            ("colour = 'red'", "there is no key \"colour\""),
            ("check = true", "there is no key \"check\""),
            ("a = 1\nb = 2", "there is no key \"a\"; there is no key \"b\""),
            ("quick-start = 'yes'", "quick-start takes true or false, and this is of type string"),
            (
                "max-bytes = true",
                "max-bytes takes a string or a number, and this is of type boolean",
            ),
            ("max-bytes = [5]", "max-bytes takes a string or a number, and this is of type array"),
            ("max-bytes = -5", "invalid value '-5' for '--max-bytes <number>': -5 is not in 0..="),
            ("max-bytes = 5\nmax-bytes = 6", "line 2: duplicate key"),
            ("max-bytes = ", "line 1: "),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(error.starts_with(reason), "{text}: {error}");
        }
    }
}
