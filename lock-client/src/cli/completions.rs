//! `lock-client completions`.

use clap::{Args, Command};
use clap_complete::{Shell, generate};

use super::{Failure, events::print_bytes};

#[derive(Args, Debug)]
pub(super) struct Completions {
    /// The shell to complete for
    shell: Shell,
}

impl Completions {
    pub(super) fn run(self, mut command: Command) -> Result<(), Failure> {
        let mut script = Vec::new();
        generate(self.shell, &mut command, "lock-client", &mut script);
        print_bytes(&script)
    }
}
