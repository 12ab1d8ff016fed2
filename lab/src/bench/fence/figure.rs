//! The figures of the bench, as its report shows them.

use serde::Serialize;

use super::rates::Rates;

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
