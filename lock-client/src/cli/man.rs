//! `lock-client man`.

use clap::{Args, Command};
use clap_mangen::Man as Page;

use super::{Failure, events::print_bytes};

#[derive(Args, Debug)]
pub(super) struct Man {
    /// The command to print the page of, such as run [default: the page of them all]
    command: Option<String>,
}

impl Man {
    pub(super) fn run(self, mut command: Command) -> Result<(), Failure> {
        // The commands learn their whole names.
        command.build();
        let command = match self.command {
            None => command,
            Some(name) => command
                .find_subcommand(&name)
                .cloned()
                .ok_or_else(|| Failure::Usage(format!("there is no command {name}")))?,
        };
        let mut page = Vec::new();
        Page::new(command).render(&mut page).expect("memory can be written to");
        print_bytes(&page)
    }
}
