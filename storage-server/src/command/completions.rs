//! `completions`: a script for a shell.

use clap::{Args, Command};
use clap_complete::{Shell, generate};

use super::print_text;

#[derive(Debug, Args)]
pub(super) struct Completions {
    /// The shell that completes.
    shell: Shell,
}

impl Completions {
    pub(super) fn run(self, mut command: Command) -> anyhow::Result<()> {
        let mut script = Vec::new();
        generate(self.shell, &mut command, "storage-server", &mut script);
        let mut script = String::from_utf8(script).expect("scripts are text");
        if self.shell == Shell::Bash {
            // For a program with a hyphen in its name, the script sets one name and reads another:
            // https://github.com/clap-rs/clap/issues/6421
            script = script.replace("storage__subcmd__server", "storage__server");
        }
        print_text(&script)
    }
}
