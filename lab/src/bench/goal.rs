//! The goals of a bench.

use serde::Serialize;

use crate::output::Table;

/// A goal: a measured ratio must be at least, or at most, a bound.
#[derive(Debug, Serialize)]
pub(super) struct Goal {
    subject: String,
    #[serde(flatten)]
    bound: Bound,
    measured: f64,
    #[serde(rename = "reached")]
    met: bool,
}

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

impl Goal {
    pub(super) fn at_least(subject: impl Into<String>, bound: f64, measured: f64) -> Self {
        let met = measured >= bound;
        Self { subject: subject.into(), bound: Bound::AtLeast(bound), measured, met }
    }

    pub(super) fn at_most(subject: impl Into<String>, bound: f64, measured: f64) -> Self {
        let met = measured <= bound;
        Self { subject: subject.into(), bound: Bound::AtMost(bound), measured, met }
    }

    pub(super) fn table<'a>(goals: impl IntoIterator<Item = &'a Self>) -> Table {
        let rows = goals.into_iter().map(|Self { subject, bound, measured, met }| {
            let bound = match bound {
                Bound::AtLeast(bound) => format!("at least {bound}"),
                Bound::AtMost(bound) => format!("at most {bound}"),
            };
            let met = if *met { "met" } else { "MISSED" };
            [subject.clone(), format!("{measured:.2}"), bound, met.to_owned()]
        });
        Table::new(["goal", "measured", "bound", ""], rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_met_at_their_bound_and_missed_beyond_it() {
        let goals = [
            Goal::at_least("of the null server", 0.45, 0.45),
            Goal::at_least("of pgbench", 1.2, 1.19),
            Goal::at_most("EVALSHAs", 2.0, 2.0),
            Goal::at_most("PINGs", 10.0, 10.01),
        ];
        insta::assert_snapshot!(Goal::table(&goals), @r"
        goal                measured          bound
        of the null server      0.45  at least 0.45     met
        of pgbench              1.19   at least 1.2  MISSED
        EVALSHAs                2.00      at most 2     met
        PINGs                  10.01     at most 10  MISSED
        ");
        let json = serde_json::to_value(&goals[1]).unwrap();
        let keys = serde_json::json!({
            "subject": "of pgbench", "at_least": 1.2, "measured": 1.19, "reached": false,
        });
        assert_eq!(json, keys);
    }
}
