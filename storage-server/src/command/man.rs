//! `man`: the manual pages.

use anyhow::Context;
use clap::{Args, Command};
use clap_mangen::Man as Page;

use super::print_text;

#[derive(Debug, Args)]
pub(super) struct Man {
    /// The command of the page, such as `fence set`. Without it, the page of all commands.
    command: Vec<String>,
}

impl Man {
    pub(super) fn run(self, mut command: Command) -> anyhow::Result<()> {
        // This gives the subcommands their whole names.
        command.build();
        let mut found = &command;
        for name in &self.command {
            found = found
                .find_subcommand(name)
                .with_context(|| format!("there is no command {}", self.command.join(" ")))?;
        }
        let name = found.get_display_name().unwrap_or_else(|| found.get_name());
        let source = format!("{name} {}", env!("CARGO_PKG_VERSION"));
        let mut page = Vec::new();
        Page::new(found.clone()).source(source).render(&mut page)?;
        print_text(&String::from_utf8(page)?)
    }
}
