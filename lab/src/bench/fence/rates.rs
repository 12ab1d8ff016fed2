//! The transactions per second of workloads.

use indexmap::IndexMap;

use super::{ROUNDS, workload::Workload};
use crate::bench::load::WARM_UP_SECONDS;

/// The transactions per second of each workload, in the order in which they are shown.
#[derive(Debug)]
pub(super) struct Rates(IndexMap<Workload, f64>);

impl Rates {
    /// Measures each workload for some seconds in all. `run` runs one for so many seconds, and
    /// returns its transactions per second.
    pub(super) async fn measure(
        workloads: &[Workload],
        seconds: u32,
        run: impl AsyncFn(Workload, u32) -> anyhow::Result<f64>,
    ) -> anyhow::Result<Self> {
        for &workload in workloads {
            run(workload, WARM_UP_SECONDS).await?;
        }
        let mut rates: IndexMap<_, _> = workloads.iter().map(|&workload| (workload, 0.0)).collect();
        for _ in 0..ROUNDS {
            for (&workload, rate) in &mut rates {
                let measured = run(workload, seconds.div_ceil(ROUNDS)).await?;
                *rate += measured / f64::from(ROUNDS);
            }
        }
        Ok(Self(rates))
    }

    pub(super) fn workloads(&self) -> impl Iterator<Item = Workload> {
        self.0.keys().copied()
    }

    pub(super) fn get(&self, workload: Workload) -> f64 {
        self.0[&workload]
    }

    /// The rate of a workload, as a part of its unfenced counterpart's rate.
    pub(super) fn of_unfenced(&self, workload: Workload) -> f64 {
        self.get(workload) / self.get(workload.unfenced())
    }
}
