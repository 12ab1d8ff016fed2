//! How a command prints its report: as tables, or as JSON.

use std::{
    fmt::{self, Display},
    io::{self, Write},
};

use clap::Args;
use comfy_table::{CellAlignment, presets::NOTHING};
use serde::Serialize;

/// The option that chooses the form of a report.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Output {
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
}

impl Output {
    pub(crate) fn print(self, report: &(impl Display + Serialize)) -> anyhow::Result<()> {
        let mut stdout = io::stdout().lock();
        if self.json {
            writeln!(stdout, "{}", serde_json::to_string_pretty(report)?)?;
        } else {
            write!(stdout, "{report}")?;
        }
        Ok(())
    }
}

/// A table without borders. Its first column is text, the others are figures, aligned to the right.
#[derive(Debug)]
pub(crate) struct Table(comfy_table::Table);

impl Table {
    pub(crate) fn new<'a, R: IntoIterator<Item = String>>(
        header: impl IntoIterator<Item = &'a str>,
        rows: impl IntoIterator<Item = R>,
    ) -> Self {
        let mut table = comfy_table::Table::new();
        table.load_style(NOTHING).set_header(header).add_rows(rows);
        for column in table.column_iter_mut() {
            column.set_padding((2, 0)).set_cell_alignment(CellAlignment::Right);
        }
        if let Some(text) = table.column_mut(0) {
            text.set_padding((0, 0)).set_cell_alignment(CellAlignment::Left);
        }
        Self(table)
    }
}

impl Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.lines().try_for_each(|line| writeln!(f, "{}", line.trim_end()))
    }
}
