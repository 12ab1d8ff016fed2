//! PostgreSQL's protocol
//! (<https://www.postgresql.org/docs/current/protocol-message-formats.html>).
//!
//! Only statements and their outcomes are noted: nothing of how a connection starts.

mod messages;

use std::collections::{HashMap, VecDeque};

use self::messages::{Column, Fields, shown, whole};
use super::ledger::{Ledger, shortened};
use crate::record::Exchange;

/// How many rows of an answer are noted.
const MOST_ROWS: usize = 5;
/// The first message has no type. These are its codes, if it only asks for encryption.
const ASKS_FOR_ENCRYPTION: [i32; 2] = [80_877_103, 80_877_104];

/// A conversation with a PostgreSQL.
#[derive(Debug)]
pub(super) struct Conversation {
    database: String,
    pub(super) ledger: Ledger,
    /// What is the beginning of a message of the client, or of the server.
    sent: Vec<u8>,
    received: Vec<u8>,
    has_started: bool,
    /// Whether the server has answered that it takes statements.
    is_ready: bool,
    /// Whether the server answers by a single letter whether it encrypts.
    is_asked_for_encryption: bool,
    statements: HashMap<String, Statement>,
    /// The statements that portals run, and whether their results are binary.
    portals: HashMap<String, Portal>,
    /// What the server answers next.
    steps: VecDeque<Step>,
}

#[derive(Clone, Debug, Default)]
struct Statement {
    sql: String,
    parameters: Vec<u32>,
    columns: Vec<Column>,
}

#[derive(Clone, Debug, Default)]
struct Portal {
    statement: String,
    arguments: Vec<Option<String>>,
    is_binary: bool,
}

/// What the server answers to a message of the client.
#[derive(Debug)]
enum Step {
    /// Something that is not noted.
    Silent,
    /// A description of a statement, or of a portal.
    Describe(String),
    Statement(Outcome),
    /// The end of what is answered together.
    Sync,
}

/// What is known of a statement's outcome.
#[derive(Debug, Default)]
struct Outcome {
    /// The name of the statement, which has the columns, too.
    statement: String,
    columns: Vec<Column>,
    is_binary: bool,
    /// Whether it is one message of several statements, whose end is that of all.
    is_simple: bool,
    rows: usize,
    lines: Vec<String>,
}

impl Conversation {
    pub(super) fn new(database: String, ledger: Ledger) -> Self {
        Self {
            database,
            ledger,
            sent: Vec::new(),
            received: Vec::new(),
            has_started: false,
            is_ready: false,
            is_asked_for_encryption: false,
            statements: HashMap::new(),
            portals: HashMap::new(),
            steps: VecDeque::new(),
        }
    }

    pub(super) fn note_sent(&mut self, bytes: &[u8]) {
        self.sent.extend(bytes);
        while !self.has_started {
            let Some(message) = whole(&mut self.sent, 0) else { return };
            let asks =
                Fields(&message).i32().is_some_and(|code| ASKS_FOR_ENCRYPTION.contains(&code));
            self.is_asked_for_encryption |= asks;
            self.has_started = !asks;
        }
        while let Some(message) = whole(&mut self.sent, 1) {
            let mut fields = Fields(&message[1..]);
            // One that is not as expected is not noted.
            let _ = self.note_message(message[0], &mut fields);
        }
    }

    pub(super) fn note_received(&mut self, bytes: &[u8]) {
        self.received.extend(bytes);
        if self.is_asked_for_encryption && !self.received.is_empty() {
            self.received.remove(0);
            self.is_asked_for_encryption = false;
        }
        while let Some(message) = whole(&mut self.received, 1) {
            self.note_answer(message[0], Fields(&message[1..]));
        }
    }

    fn note_message(&mut self, kind: u8, fields: &mut Fields<'_>) -> Option<()> {
        match kind {
            b'P' => {
                let (name, sql) = (fields.string()?, fields.string()?);
                let count = fields.i16()?;
                let parameters = (0..count).map_while(|_| fields.u32()).collect();
                self.statements.insert(name, Statement { sql, parameters, columns: Vec::new() });
                self.steps.push_back(Step::Silent);
            }
            b'B' => {
                let (portal, bound) = self.bound(fields)?;
                self.portals.insert(portal, bound);
                self.steps.push_back(Step::Silent);
            }
            b'D' => {
                let (is_portal, name) = (fields.u8()? == b'P', fields.string()?);
                let name = match is_portal {
                    true => self.portals.get(&name)?.statement.clone(),
                    false => name,
                };
                self.steps.push_back(Step::Describe(name));
            }
            b'E' => {
                let Portal { statement, arguments, is_binary } =
                    self.portals.get(&fields.string()?)?.clone();
                let sql = self.statements.get(&statement)?.sql.clone();
                self.ask(&sql, arguments);
                let outcome = Outcome { statement, is_binary, ..Outcome::default() };
                self.steps.push_back(Step::Statement(outcome));
            }
            b'Q' => {
                let sql = fields.string()?;
                self.ask(&sql, Vec::new());
                let outcome = Outcome { is_simple: true, ..Outcome::default() };
                self.steps.extend([Step::Statement(outcome), Step::Sync]);
            }
            b'C' => self.steps.push_back(Step::Silent),
            b'S' => self.steps.push_back(Step::Sync),
            // Passwords are among the others.
            _ => {}
        }
        Some(())
    }

    /// A portal, with the arguments as texts.
    fn bound(&self, fields: &mut Fields<'_>) -> Option<(String, Portal)> {
        let (portal, statement) = (fields.string()?, fields.string()?);
        let types = &self.statements.get(&statement)?.parameters;
        let formats = fields.i16s()?;
        let mut arguments = Vec::new();
        for number in 0..usize::try_from(fields.i16()?).ok()? {
            let is_binary = formats.get(number).or(formats.first()) == Some(&1);
            let kind = types.get(number).copied().unwrap_or_default();
            arguments.push(fields.value()?.map(|value| shown(value, kind, is_binary)));
        }
        let is_binary = fields.i16s()?.first() == Some(&1);
        Some((portal, Portal { statement, arguments, is_binary }))
    }

    fn ask(&mut self, sql: &str, arguments: Vec<Option<String>>) {
        let (database, statement) = (self.database.clone(), shortened(&unindented(sql)));
        self.ledger.ask(Exchange::Sql { database, statement, arguments, answer: None }, None);
    }

    fn note_answer(&mut self, kind: u8, mut fields: Fields<'_>) {
        match (kind, self.steps.front_mut()) {
            // What was parsed, bound or closed.
            (b'1' | b'2' | b'3', Some(Step::Silent)) => drop(self.steps.pop_front()),
            (b't', Some(Step::Describe(name))) => {
                let count = fields.i16().unwrap_or_default();
                let parameters = (0..count).map_while(|_| fields.u32()).collect();
                self.statements.entry(name.clone()).or_default().parameters = parameters;
            }
            (b'T', Some(Step::Describe(name))) => {
                let columns = fields.columns().unwrap_or_default();
                self.statements.entry(name.clone()).or_default().columns = columns;
                self.steps.pop_front();
            }
            (b'n', Some(Step::Describe(_))) => drop(self.steps.pop_front()),
            (b'T', Some(Step::Statement(outcome))) => {
                outcome.columns = fields.columns().unwrap_or_default();
            }
            (b'D', Some(Step::Statement(outcome))) => {
                if let Some(statement) = self.statements.get(&outcome.statement)
                    && !outcome.is_simple
                {
                    outcome.columns.clone_from(&statement.columns);
                }
                outcome.add_row(&mut fields);
            }
            (b'C', Some(Step::Statement(outcome))) => {
                outcome.lines.push(fields.string().unwrap_or_default());
                if !outcome.is_simple {
                    self.end_statement();
                }
            }
            (b's' | b'I', Some(Step::Statement(outcome))) if !outcome.is_simple => {
                self.end_statement();
            }
            // It is the answer to the first statement, also if that was only being prepared. Messages before
            // the statement have no answer of their own then.
            (b'E', _) => {
                while let Some(step) = self.steps.front_mut() {
                    match step {
                        Step::Statement(outcome) => {
                            outcome.lines.push(fields.error());
                            self.end_statement();
                            break;
                        }
                        Step::Sync => break,
                        Step::Silent | Step::Describe(_) => drop(self.steps.pop_front()),
                    }
                }
            }
            (b'Z', _) if !self.is_ready => self.is_ready = true,
            // The server has skipped the messages after an error.
            (b'Z', _) => {
                while let Some(step) = self.steps.front() {
                    match step {
                        Step::Statement(_) => self.end_statement(),
                        Step::Sync => {
                            self.steps.pop_front();
                            break;
                        }
                        Step::Silent | Step::Describe(_) => drop(self.steps.pop_front()),
                    }
                }
            }
            _ => {}
        }
    }

    fn end_statement(&mut self) {
        if let Some(Step::Statement(outcome)) = self.steps.pop_front() {
            self.ledger.answer(&outcome.lines.join("\n"));
        }
    }
}

impl Outcome {
    fn add_row(&mut self, fields: &mut Fields<'_>) {
        self.rows += 1;
        if self.rows > MOST_ROWS {
            if self.rows == MOST_ROWS + 1 {
                self.lines.push("…".to_owned());
            }
            return;
        }
        let count = fields.i16().unwrap_or_default();
        let values = (0..count).map_while(|_| fields.value());
        let cells = values.zip(&self.columns).map(|(value, column)| {
            let value = value.map(|value| shown(value, column.kind, self.is_binary));
            format!("{}: {}", column.name, value.as_deref().unwrap_or("null"))
        });
        self.lines.push(cells.collect::<Vec<_>>().join(", "));
    }
}

/// A statement without the indentation of the code that it stands in.
fn unindented(sql: &str) -> String {
    let lines: Vec<_> = sql.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn message(kind: &str, parts: &[&[u8]]) -> Vec<u8> {
        let body = parts.concat();
        let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
        [kind.as_bytes(), &length, &body].concat()
    }

    fn noted(sent: &[Vec<u8>], received: &[Vec<u8>]) -> Vec<(String, Vec<Option<String>>, String)> {
        let mut one = Conversation::new("postgres://a".to_owned(), Ledger::new(Arc::default()));
        sent.concat().iter().for_each(|byte| one.note_sent(&[*byte]));
        received.concat().iter().for_each(|byte| one.note_received(&[*byte]));
        let exchanges = one.ledger.take().into_iter().map(|noted| match noted.exchange {
            Exchange::Sql { statement, arguments, answer, .. } => {
                (statement, arguments, answer.unwrap())
            }
            other => panic!("{other:?}"),
        });
        exchanges.collect()
    }

    fn start() -> Vec<u8> {
        message("", &[&196_608_u32.to_be_bytes(), b"user\0me\0\0"])
    }

    #[test]
    fn statement_is_noted_with_its_arguments_and_rows_and_a_password_is_not() {
        let int8 = 20_u32.to_be_bytes();
        let column = [b"n\0", &[0; 6][..], &int8, &[0; 8]].concat();
        let sent = [
            message("", &[&ASKS_FOR_ENCRYPTION[0].to_be_bytes()]),
            start(),
            message("p", &[b"secret\0"]),
            message("P", &[b"s\0select\n   $1\0", &[0, 1], &int8]),
            message("D", &[b"Ss\0"]),
            message("S", &[]),
            message(
                "B",
                &[
                    b"\0s\0",
                    &[0, 1, 0, 1, 0, 2],
                    &8_u32.to_be_bytes(),
                    &(-33_i64).to_be_bytes(),
                    &[255; 4],
                    &[0, 1, 0, 1],
                ],
            ),
            message("E", &[b"\0", &[0; 4]]),
            message("S", &[]),
        ];
        let received = [
            b"N".to_vec(),
            message("R", &[&[0; 4]]),
            message("Z", &[b"I"]),
            message("1", &[]),
            message("t", &[&[0, 1], &int8]),
            message("T", &[&[0, 1], &column]),
            message("Z", &[b"I"]),
            message("2", &[]),
            message("D", &[&[0, 1], &8_u32.to_be_bytes(), &(-33_i64).to_be_bytes()]),
            message("C", &[b"SELECT 1\0"]),
            message("Z", &[b"I"]),
        ];
        let arguments = vec![Some("-33".to_owned()), None];
        let answer = "n: -33\nSELECT 1".to_owned();
        assert_eq!(noted(&sent, &received), [("select\n$1".to_owned(), arguments, answer)]);
    }

    #[test]
    fn error_ends_a_message_of_several_statements_and_the_next_one_has_its_own_answer() {
        let query = |sql: &str| message("Q", &[sql.as_bytes(), b"\0"]);
        let received = [
            message("Z", &[b"I"]),
            message("C", &[b"BEGIN\0"]),
            message("E", &[b"SERROR\0CZF001\0Mstale\0D{}\0\0"]),
            message("Z", &[b"E"]),
            message("C", &[b"ROLLBACK\0"]),
            message("Z", &[b"I"]),
        ];
        let noted = noted(&[start(), query("begin; a"), query("rollback")], &received);
        let answers: Vec<_> = noted.iter().map(|(_, _, answer)| &**answer).collect();
        assert_eq!(answers, ["BEGIN\nERROR ZF001: stale\n{}", "ROLLBACK"]);
    }

    #[test]
    fn error_is_noted_before_the_server_is_ready_again() {
        let received = [message("Z", &[b"I"]), message("E", &[b"SERROR\0CZF001\0Mstale\0\0"])];
        let noted = noted(&[start(), message("Q", &[b"a\0"])], &received);
        assert_eq!(noted, [("a".to_owned(), Vec::new(), "ERROR ZF001: stale".to_owned())]);
    }
}
