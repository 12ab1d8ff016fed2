//! The figures of the bench, as its report shows them.

use serde::Serialize;

use super::{bulk::Bulk, rates::Rates};

#[derive(Debug, Serialize)]
pub(super) struct Figure {
    subject: &'static str,
    per_second: f64,
    of_unfenced: f64,
    #[serde(flatten)]
    pub(super) slow: Option<Slow>,
}

/// Slow commits take 2 ms or longer.
#[derive(Debug, Serialize)]
pub(super) struct Slow {
    per_second_with_slow_commits: f64,
    of_unfenced_with_slow_commits: f64,
}

/// One statement that writes many rows.
#[derive(Debug, Serialize)]
pub(super) struct BulkFigure {
    database: &'static str,
    statement: String,
    bare_rows: u32,
    bare_us_per_row: f64,
    protected_rows: u32,
    protected_us_per_row: f64,
    of_bare: f64,
}

impl Figure {
    pub(super) fn list(rates: &Rates, slow: Option<&Rates>) -> Vec<Self> {
        let figures = rates.workloads().map(|workload| Self {
            subject: workload.subject(),
            per_second: rates.get(workload),
            of_unfenced: rates.of_unfenced(workload),
            slow: slow.map(|slow| Slow {
                per_second_with_slow_commits: slow.get(workload),
                of_unfenced_with_slow_commits: slow.of_unfenced(workload),
            }),
        });
        figures.collect()
    }

    pub(super) fn cells(&self) -> [String; 3] {
        [
            self.subject.to_owned(),
            format!("{:.0}", self.per_second),
            format!("{:.2}", self.of_unfenced),
        ]
    }
}

impl Slow {
    pub(super) fn cells(&self) -> [String; 2] {
        [
            format!("{:.0}", self.per_second_with_slow_commits),
            format!("{:.2}", self.of_unfenced_with_slow_commits),
        ]
    }
}

impl BulkFigure {
    pub(super) fn list(database: &'static str, bulk: &Bulk) -> [Self; 2] {
        [&bulk.insert, &bulk.update].map(|pair| Self {
            database,
            statement: pair.bare.subject().to_owned(),
            bare_rows: bulk.bare_rows,
            bare_us_per_row: pair.bare.quantile_us(0.5),
            protected_rows: bulk.protected_rows,
            protected_us_per_row: pair.protected.quantile_us(0.5),
            of_bare: pair.of_bare(),
        })
    }

    pub(super) fn cells(&self) -> [String; 6] {
        [
            format!("{}, {}", self.database, self.statement),
            self.bare_rows.to_string(),
            format!("{:.1}", self.bare_us_per_row),
            self.protected_rows.to_string(),
            format!("{:.1}", self.protected_us_per_row),
            format!("{:.2}", self.of_bare),
        ]
    }
}
