//! The command that is run under a lock, found before the lock is taken.

use std::{
    env,
    ffi::OsString,
    io,
    path::{Path, PathBuf},
};

use rustix::fs::{Access, access};

/// Where programs are looked for without a `PATH`.
const USUAL_PATH: &str = "/bin:/usr/bin";

/// A command whose program is there.
#[derive(Debug)]
pub(super) struct Command {
    /// The file to execute.
    pub(super) program: PathBuf,
    /// What the program is told as its name.
    pub(super) name: OsString,
    pub(super) arguments: Vec<OsString>,
}

/// Why a command can't be run.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CannotRun {
    /// There is no such program.
    NotFound(String),
    /// It is there, and can't be executed.
    NotExecutable(String),
}

impl CannotRun {
    /// The exit code that shells have for it.
    pub(super) fn exit_code(&self) -> u8 {
        match self {
            Self::NotFound(_) => 127,
            Self::NotExecutable(_) => 126,
        }
    }

    pub(super) fn message(&self) -> &str {
        let (Self::NotFound(message) | Self::NotExecutable(message)) = self;
        message
    }
}

impl Command {
    /// Finds a command's program, as a shell would: a name without a slash in the `PATH`.
    pub(super) fn find(mut words: Vec<OsString>) -> Result<Self, CannotRun> {
        assert!(!words.is_empty(), "the arguments ask for a command");
        let name = words.remove(0);
        let program = find(Path::new(&name), env::var_os("PATH"))?;
        Ok(Self { program, name, arguments: words })
    }
}

/// What it means that the operating system did not execute a program: a file that is there may be of
/// no kind that it knows, or need an interpreter that is not there.
pub(super) fn refused(program: &Path, error: &io::Error) -> CannotRun {
    let message = format!("{} can't be run: {error}", program.display());
    match error.kind() {
        io::ErrorKind::NotFound => CannotRun::NotFound(message),
        _ => CannotRun::NotExecutable(message),
    }
}

fn find(name: &Path, path: Option<OsString>) -> Result<PathBuf, CannotRun> {
    let shown = name.display();
    if name.as_os_str().as_encoded_bytes().contains(&b'/') {
        return match executable(name) {
            Executable::Yes => Ok(name.to_owned()),
            Executable::No(reason) => {
                Err(CannotRun::NotExecutable(format!("{shown} can't be run: {reason}")))
            }
            Executable::NotThere => Err(CannotRun::NotFound(format!("there is no {shown}"))),
        };
    }
    let path = path.unwrap_or_else(|| USUAL_PATH.into());
    let mut obstacle = None;
    for folder in env::split_paths(&path) {
        // An empty folder in the path is the current one.
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { &folder };
        let file = folder.join(name);
        match executable(&file) {
            Executable::Yes if !name.as_os_str().is_empty() => return Ok(file),
            Executable::No(reason) if !name.as_os_str().is_empty() => {
                obstacle.get_or_insert(format!("{} can't be run: {reason}", file.display()));
            }
            _ => {}
        }
    }
    Err(match obstacle {
        Some(obstacle) => CannotRun::NotExecutable(obstacle),
        None => CannotRun::NotFound(format!("there is no {shown} in the PATH")),
    })
}

enum Executable {
    Yes,
    No(&'static str),
    NotThere,
}

fn executable(file: &Path) -> Executable {
    match file.metadata() {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Executable::No("its folder may not be searched")
        }
        Err(_) => Executable::NotThere,
        Ok(metadata) if !metadata.is_file() => Executable::No("it is not a file"),
        Ok(_) if access(file, Access::EXEC_OK).is_err() => Executable::No("it is not executable"),
        Ok(_) => Executable::Yes,
    }
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
        assert!(found("sh", None).is_ok(), "there is a usual path");
    }

    #[test]
    fn what_is_not_there_is_127_and_what_is_no_program_126() {
        let code = |name, path| found(name, Some(path)).unwrap_err().exit_code();
        assert_eq!(code("no-such-program", "/bin:/usr/bin"), 127);
        assert_eq!(code("/no/such/program", ""), 127);
        assert_eq!(code("", "/bin"), 127);
        assert_eq!(code("/etc", ""), 126);
        assert_eq!(code("/etc/passwd", ""), 126);
        // One in the path that can't be executed is not passed over in silence.
        assert_eq!(code("passwd", "/etc:/nowhere"), 126);
    }
}
