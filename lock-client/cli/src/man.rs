//! `lock-client man`.

use clap::{Args, Command};
use clap_mangen::{
    Man as Page,
    roff::{Roff, roman},
};

use crate::{failure::Failure, stdout::print_bytes};

const VERSION: &str = env!("CARGO_PKG_VERSION");

#[derive(Args, Debug)]
pub(crate) struct Man {
    /// The command of the page, such as run or node change [default: the page of all commands]
    command: Vec<String>,
}

impl Man {
    pub(crate) fn run(self, mut command: Command) -> Result<(), Failure> {
        // This gives the subcommands their whole names.
        command.build();
        let mut names = self.command.iter().flat_map(|name| name.split('-'));
        let found = names.try_fold(&command, |command, name| command.find_subcommand(name));
        let unknown = || Failure::Usage("there is no command of this name".to_owned());
        print_bytes(&page(found.ok_or_else(unknown)?.clone()))
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
