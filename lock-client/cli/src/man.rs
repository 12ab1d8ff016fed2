//! `lock-client man`.

use clap::{Args, Command, builder::PossibleValuesParser};
use clap_mangen::{
    Man as Page,
    roff::{Roff, roman},
};

use crate::{failure::Failure, stdout::print_bytes};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commands that have a page, for completions.
pub(crate) const NAMES: [&str; 17] = [
    "run",
    "put",
    "get",
    "acquire",
    "renew",
    "release",
    "status",
    "list",
    "break",
    "doctor",
    "node",
    "node-init",
    "node-admit",
    "node-status",
    "watch",
    "completions",
    "man",
];

#[derive(Args, Debug)]
pub(crate) struct Man {
    /// The command of the page [default: the page of all commands]
    #[arg(value_parser = PossibleValuesParser::new(NAMES))]
    command: Option<String>,

    /// The command below it: `man node admit` is `man node-admit`
    subcommand: Option<String>,
}

impl Man {
    pub(crate) fn run(self, mut command: Command) -> Result<(), Failure> {
        // This gives the subcommands their whole names.
        command.build();
        let command = match self.command {
            None => command,
            Some(name) => {
                let mut names = name.split('-').chain(self.subcommand.as_deref());
                let found = names.try_fold(&command, |command, name| command.find_subcommand(name));
                let unknown = || Failure::usage("there is no command of this name");
                found.ok_or_else(unknown)?.clone()
            }
        };
        print_bytes(&page(command))
    }
}

fn page(command: Command) -> Vec<u8> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let text = command.get_after_long_help().or_else(|| command.get_after_help());
    let notes = text.map(|text| notes(&text.to_string()));
    let command = command.after_help(None::<&str>).after_long_help(None::<&str>);
    let page = Page::new(command).source(format!("{name} {VERSION}"));
    let mut out = Vec::new();
    let rendered = page.render(&mut out).and_then(|()| match notes {
        Some(notes) => notes.to_writer(&mut out),
        None => Ok(()),
    });
    rendered.expect("memory can be written to");
    out
}

/// The text at the end of a page. Indented lines are printed as they are; the renderer of pages
/// would join them.
fn notes(text: &str) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["NOTES"]);
    let mut literal = false;
    for line in text.lines() {
        let indented = line.starts_with(' ');
        if indented != literal && !line.is_empty() {
            roff.control(if indented { "nf" } else { "fi" }, []);
            literal = indented;
        }
        if line.is_empty() {
            roff.control("PP", []);
        } else {
            roff.text([roman(line)]);
        }
    }
    if literal {
        roff.control("fi", []);
    }
    roff
}
