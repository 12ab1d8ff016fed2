//! The report of a bench: as tables, or as JSON.

use std::fmt::{self, Display, Write};

use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::{
    goal::Goal,
    subject::{Sample, Subject, Times},
};
use crate::output::Table;

/// Figures, which are added to the text and to the JSON at once.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) text: String,
    pub(super) json: Map<String, Value>,
}

impl Report {
    /// Adds a line to the text.
    pub(super) fn line(&mut self, line: impl Display) {
        writeln!(self.text, "{line}").expect("a string takes every text");
    }

    /// Adds a value to the JSON.
    pub(super) fn value(&mut self, key: &str, value: impl Serialize) {
        let value = serde_json::to_value(value).expect("the keys of all values are strings");
        self.json.insert(key.to_owned(), value);
    }

    pub(super) fn table<T>(&mut self, rows: Rows<'_, T>) {
        let Rows { key, titles, cells, json, .. } = rows;
        self.value(key, json);
        self.line(Table::new(titles, cells));
    }

    /// Adds the goals, each of which is met or missed.
    pub(super) fn goals(&mut self, goals: &[Goal]) {
        self.value("targets", goals);
        self.line(Goal::table(goals));
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.text.trim_end())
    }
}

impl Serialize for Report {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.json.serialize(serializer)
    }
}

/// A table, and a list in the JSON, with a row for each of some values. Each column has a title, and a
/// key in the JSON.
pub(super) struct Rows<'a, T> {
    key: &'static str,
    values: &'a [T],
    titles: Vec<&'a str>,
    cells: Vec<Vec<String>>,
    json: Vec<Map<String, Value>>,
}

impl<'a, T> Rows<'a, T> {
    pub(super) fn new(key: &'static str, values: &'a [T]) -> Self {
        let (cells, json) = values.iter().map(|_| Default::default()).unzip();
        Self { key, values, titles: Vec::new(), cells, json }
    }

    pub(super) fn text(self, title: &'a str, key: &'static str, text: impl Fn(&T) -> &str) -> Self {
        self.column(title, key, |value| (text(value).to_owned(), json!(text(value))))
    }

    pub(super) fn number(
        self,
        title: &'a str,
        key: &'static str,
        number: impl Fn(&T) -> usize,
    ) -> Self {
        self.column(title, key, |value| (number(value).to_string(), json!(number(value))))
    }

    /// A row may have no such figure.
    pub(super) fn figure(
        self,
        title: &'a str,
        key: &'static str,
        decimals: usize,
        figure: impl Fn(&T) -> Option<f64>,
    ) -> Self {
        self.column(title, key, |value| {
            let figure = figure(value);
            (figure.map(|figure| format!("{figure:.decimals$}")).unwrap_or_default(), json!(figure))
        })
    }

    /// Adds nothing to the table.
    pub(super) fn only_json(mut self, key: &'static str, json: impl Fn(&T) -> Value) -> Self {
        for (value, row) in self.values.iter().zip(&mut self.json) {
            row.insert(key.to_owned(), json(value));
        }
        self
    }

    fn column(
        mut self,
        title: &'a str,
        key: &'static str,
        cell: impl Fn(&T) -> (String, Value),
    ) -> Self {
        self.titles.push(title);
        for ((value, cells), json) in self.values.iter().zip(&mut self.cells).zip(&mut self.json) {
            let (text, value) = cell(value);
            cells.push(text);
            json.insert(key.to_owned(), value);
        }
        self
    }
}

impl<'a, S: Sample> Rows<'a, Subject<'_, S>> {
    pub(super) fn subjects(self, title: &'a str) -> Self {
        self.text(title, "subject", |subject| subject.name())
    }
}

impl<'a> Rows<'a, Subject<'_, Times>> {
    /// What is shown of the times of every subject.
    pub(super) fn times(self, title: &'a str) -> Self {
        self.subjects(title)
            .number("count", "count", Subject::count)
            .figure("p50 us", "p50_us", 1, |subject| Some(subject.quantile_us(0.5)))
            .figure("p99 us", "p99_us", 1, |subject| Some(subject.quantile_us(0.99)))
    }
}
