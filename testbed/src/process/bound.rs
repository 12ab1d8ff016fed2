//! Commands whose process doesn't outlive this one.

use std::process::Command;

/// Returns a command whose process the kernel kills when the thread that starts it ends
/// (PR_SET_PDEATHSIG).
#[cfg(target_os = "linux")]
pub(super) fn bound_to_this_thread(command: &Command) -> Command {
    let mut bound = Command::new("setpriv");
    bound.args(["--pdeathsig", "KILL", "--"]).arg(command.get_program());
    completed(bound, command)
}

/// Returns the command as it is: elsewhere than on Linux, dropping the process has to suffice.
#[cfg(not(target_os = "linux"))]
pub(super) fn bound_to_this_thread(command: &Command) -> Command {
    completed(Command::new(command.get_program()), command)
}

/// Gives a command the arguments, the environment and the folder of another.
fn completed(mut command: Command, model: &Command) -> Command {
    command.args(model.get_args());
    for (key, value) in model.get_envs() {
        match value {
            Some(value) => command.env(key, value),
            None => command.env_remove(key),
        };
    }
    if let Some(folder) = model.get_current_dir() {
        command.current_dir(folder);
    }
    command
}
