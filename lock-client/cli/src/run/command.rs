//! The program of the command, found before the lock is acquired.

use std::{
    env,
    ffi::OsString,
    io,
    path::{Path, PathBuf},
};

use rustix::fs::{Access, access};

use crate::{exit_code, failure::Failure};

/// The folders of programs if there is no `PATH`.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// A command whose program exists.
#[derive(Debug)]
pub(super) struct Command {
    /// The file to execute.
    pub(super) program: PathBuf,
    /// The command's own name, its argument 0.
    pub(super) name: OsString,
    pub(super) arguments: Vec<OsString>,
}

impl Command {
    /// Finds the program as a shell does: a name without a slash is looked for in the `PATH`.
    pub(super) fn find(mut words: Vec<OsString>) -> Result<Self, Failure> {
        assert!(!words.is_empty(), "clap requires a command");
        let name = words.remove(0);
        let program = find(Path::new(&name), env::var_os("PATH"))?;
        Ok(Self { program, name, arguments: words })
    }
}

/// The reason why the operating system did not execute a program. A file that exists may have an
/// unknown format, or need an interpreter that does not exist.
pub(super) fn exec_error(program: &Path, error: &io::Error) -> Failure {
    let code = match error.kind() {
        io::ErrorKind::NotFound => exit_code::NOT_FOUND,
        _ => exit_code::NOT_EXECUTABLE,
    };
    Failure::Message(code, format!("{} can't be run: {error}", program.display()))
}

fn find(name: &Path, path: Option<OsString>) -> Result<PathBuf, Failure> {
    let not_found =
        |reason| Failure::Message(exit_code::NOT_FOUND, format!("{} {reason}", name.display()));
    if name.as_os_str().as_encoded_bytes().contains(&b'/') {
        return check(name).unwrap_or_else(|| Err(not_found("does not exist")));
    }
    let path = path.unwrap_or_else(|| DEFAULT_PATH.into());
    let mut not_executable = None;
    for folder in env::split_paths(&path).filter(|_| !name.as_os_str().is_empty()) {
        // An empty entry means the current folder.
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { &folder };
        match check(&folder.join(name)) {
            Some(Ok(program)) => return Ok(program),
            Some(Err(reason)) => drop(not_executable.get_or_insert(reason)),
            None => {}
        }
    }
    Err(not_executable.unwrap_or_else(|| not_found("is not in the PATH")))
}

/// Checks whether a file can be executed. `None` if it does not exist.
fn check(file: &Path) -> Option<Result<PathBuf, Failure>> {
    let reason = match file.metadata() {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            "no permission to search its folder"
        }
        Err(_) => return None,
        Ok(metadata) if !metadata.is_file() => "it is not a file",
        Ok(_) if access(file, Access::EXEC_OK).is_err() => "it is not executable",
        Ok(_) => return Some(Ok(file.to_owned())),
    };
    let message = format!("{} can't be run: {reason}", file.display());
    Some(Err(Failure::Message(exit_code::NOT_EXECUTABLE, message)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_default_path() {
        assert!(find(Path::new("sh"), None).is_ok());
    }

    #[test]
    fn file_in_the_path_that_cannot_be_executed_is_not_reported_as_missing() {
        let failure = find(Path::new("passwd"), Some("/etc:/nowhere".into())).unwrap_err();
        assert_eq!(failure.exit_code(), 126);
    }
}
