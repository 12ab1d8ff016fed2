//! What the command prints about itself: `lock-client completions` and `lock-client man`.

use clap::{Args, Command, builder::PossibleValuesParser};
use clap_complete::{Shell, generate};
use clap_mangen::{
    Man as Page,
    roff::{Roff, roman},
};

use crate::{failure::Failure, stdout::print_bytes};

const VERSION: &str = env!("CARGO_PKG_VERSION");

#[derive(Args, Debug)]
pub(crate) struct Completions {
    /// The shell that completes
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self, command: Command) -> Result<(), Failure> {
        // The process ends soon.
        let name = |command: &Command| &*command.get_name().to_owned().leak();
        let names: Vec<&str> = command.get_subcommands().map(name).collect();
        let names = PossibleValuesParser::new(names);
        let with_names = |man: Command| man.mut_arg("command", |words| words.value_parser(names));
        let mut script = Vec::new();
        let mut command = command.mut_subcommand("man", with_names);
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

#[derive(Args, Debug)]
pub(crate) struct Man {
    /// The command of the page, such as `run` or `node admit` [default: the page of all commands]
    command: Vec<String>,
}

impl Man {
    pub(crate) fn run(self, mut command: Command) -> Result<(), Failure> {
        // This gives the subcommands their whole names.
        command.build();
        let mut names = self.command.iter().flat_map(|name| name.split('-'));
        let found = names.try_fold(&command, |command, name| command.find_subcommand(name));
        let found = found.ok_or_else(|| Failure::usage("there is no command of this name"))?;
        print_bytes(&page(found.clone()))
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
