//! `lock-client completions`.

use clap::{Args, Command};
use clap_complete::{Shell, generate};

use crate::{failure::Failure, stdout::print_bytes};

#[derive(Args, Debug)]
pub(crate) struct Completions {
    /// The shell that completes
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self, mut command: Command) -> Result<(), Failure> {
        let mut script = Vec::new();
        generate(self.shell, &mut command, "lock-client", &mut script);
        let mut script = String::from_utf8(script).expect("scripts are text");
        if self.shell == Shell::Bash {
            // For a program with a hyphen in its name, the script sets one name and reads another:
            // https://github.com/clap-rs/clap/issues/6421
            script = script.replace("lock__subcmd__client", "lock__client");
        }
        print_bytes(script.as_bytes())
    }
}
