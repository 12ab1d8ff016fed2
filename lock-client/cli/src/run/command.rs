//! The program of the command, found before the lock is acquired.

use std::{
    env,
    ffi::OsString,
    io,
    path::{Path, PathBuf},
};

use rustix::fs::{Access, access};

use crate::exit_code;

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

/// Why a command can't be run.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CannotRun {
    /// 127 if the program does not exist, and 126 if it can't be executed.
    pub(super) exit_code: u8,
    pub(super) message: String,
}

impl CannotRun {
    fn not_found(message: String) -> Self {
        Self { exit_code: exit_code::NOT_FOUND, message }
    }

    fn not_executable(message: String) -> Self {
        Self { exit_code: exit_code::NOT_EXECUTABLE, message }
    }
}

impl Command {
    /// Finds the program as a shell does: a name without a slash is looked for in the `PATH`.
    pub(super) fn find(mut words: Vec<OsString>) -> Result<Self, CannotRun> {
        assert!(!words.is_empty(), "clap requires a command");
        let name = words.remove(0);
        let program = find(Path::new(&name), env::var_os("PATH"))?;
        Ok(Self { program, name, arguments: words })
    }
}

/// The reason why the operating system did not execute a program. A file that exists may have an
/// unknown format, or need an interpreter that does not exist.
pub(super) fn exec_error(program: &Path, error: &io::Error) -> CannotRun {
    let message = format!("{} can't be run: {error}", program.display());
    match error.kind() {
        io::ErrorKind::NotFound => CannotRun::not_found(message),
        _ => CannotRun::not_executable(message),
    }
}

fn find(name: &Path, path: Option<OsString>) -> Result<PathBuf, CannotRun> {
    let shown = name.display();
    if name.as_os_str().as_encoded_bytes().contains(&b'/') {
        return check(name)
            .unwrap_or_else(|| Err(CannotRun::not_found(format!("{shown} does not exist"))));
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
    let not_found = || CannotRun::not_found(format!("{shown} is not in the PATH"));
    Err(not_executable.unwrap_or_else(not_found))
}

/// Checks whether a file can be executed. `None` if it does not exist.
fn check(file: &Path) -> Option<Result<PathBuf, CannotRun>> {
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
    Some(Err(CannotRun::not_executable(message)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, path: Option<&str>) -> Result<PathBuf, CannotRun> {
        find(Path::new(name), path.map(Into::into))
    }

    #[test]
    fn programs_are_found_as_a_shell_finds_them() {
        assert_eq!(found("/bin/sh", Some("")), Ok("/bin/sh".into()));
        assert_eq!(found("sh", Some("/nowhere:/bin")), Ok("/bin/sh".into()));
        assert!(found("sh", None).is_ok(), "there is a default path");
    }

    #[test]
    fn missing_program_is_127_and_one_that_is_not_executable_126() {
        let code = |name, path| found(name, Some(path)).unwrap_err().exit_code;
        assert_eq!(code("no-such-program", "/bin:/usr/bin"), 127);
        assert_eq!(code("/no/such/program", ""), 127);
        assert_eq!(code("", "/bin"), 127);
        assert_eq!(code("/etc", ""), 126);
        assert_eq!(code("/etc/passwd", ""), 126);
        // A file in the PATH that can't be executed is reported, and not as missing.
        assert_eq!(code("passwd", "/etc:/nowhere"), 126);
    }
}
