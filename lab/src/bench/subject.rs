//! What a bench measures, and beside what.

use std::{
    borrow::Cow,
    io::{self, Write},
    time::{Duration, Instant},
};

use anyhow::Context;
use futures_util::{FutureExt, future::LocalBoxFuture};

use super::{load::Load, work::Work};

/// The parts of a round. They alternate between the subjects, so that a moment in which the machine is
/// slow affects all of them alike.
const PARTS: usize = 10;

/// What one run of a subject has measured.
pub(super) trait Sample {
    /// Into how many parts a round is split. It divides [`PARTS`].
    const PARTS: usize;
    /// How much the first run measures. It opens connections and fills caches, and is not counted.
    const WARM_UP: usize;
    /// The unit of the figure.
    const UNIT: &'static str;

    /// The figure that is compared with another subject's.
    fn figure(&self) -> f64;
}

impl Sample for Load {
    const PARTS: usize = 1;
    const WARM_UP: usize = 2;
    const UNIT: &'static str = "per second";

    fn figure(&self) -> f64 {
        self.per_second
    }
}

/// How long each repetition took.
#[derive(Debug, Default)]
pub(super) struct Times {
    pub(super) times: Vec<Duration>,
    /// What each server did meanwhile, if it counts that.
    pub(super) work: Vec<Work>,
}

impl Sample for Times {
    const PARTS: usize = PARTS;
    const WARM_UP: usize = 1;
    const UNIT: &'static str = "us";

    fn figure(&self) -> f64 {
        quantile_us(self.times.clone(), 0.5)
    }
}

/// What is measured, beside what.
pub(super) struct Subject<'a, S> {
    name: Cow<'static, str>,
    run: Box<dyn Fn(usize) -> LocalBoxFuture<'a, anyhow::Result<S>> + 'a>,
    /// How much is measured in all rounds: seconds of a load, or repetitions.
    amount: usize,
    parts: usize,
    warm_up: usize,
    /// The number of the subject that this one is compared with.
    beside: Option<usize>,
    /// The samples of each round.
    rounds: Vec<Vec<S>>,
}

impl<'a, S: Sample> Subject<'a, S> {
    /// `run` measures so many seconds or repetitions.
    pub(super) fn new<F: Future<Output = anyhow::Result<S>> + 'a>(
        name: impl Into<Cow<'static, str>>,
        amount: usize,
        run: impl Fn(usize) -> F + 'a,
    ) -> Self {
        Self {
            name: name.into(),
            run: Box::new(move |amount| run(amount).boxed_local()),
            amount,
            parts: S::PARTS,
            warm_up: S::WARM_UP,
            beside: None,
            rounds: Vec::new(),
        }
    }

    /// Measures a round in one part, and without a first run. Such a subject uses what others have
    /// warmed up.
    pub(super) fn once_a_round(self) -> Self {
        Self { parts: 1, warm_up: 0, ..self }
    }

    /// Compares it with another subject of the same list.
    pub(super) fn beside(self, number: usize) -> Self {
        Self { beside: Some(number), ..self }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The median of the rounds' figures.
    pub(super) fn figure(&self) -> f64 {
        median(self.rounds.iter().filter_map(|samples| figure(samples)))
    }

    /// The median of the ratios of parts that were measured one after the other, or of rounds where the two
    /// don't have equally many parts. So a moment in which the machine is slow affects both alike.
    pub(super) fn ratio(&self, beside: &Self) -> f64 {
        let pairs = self.rounds.iter().zip(&beside.rounds);
        let ratios = pairs.flat_map(|(own, beside)| {
            if own.len() == beside.len() {
                let parts = own.iter().zip(beside);
                parts.map(|(own, beside)| own.figure() / beside.figure()).collect()
            } else {
                let ratio = figure(own).zip(figure(beside)).map(|(own, beside)| own / beside);
                Vec::from_iter(ratio)
            }
        });
        median(ratios)
    }

    /// The ratio to the subject beside which it is measured, if there is one.
    pub(super) fn of_beside(&self, subjects: &[Self]) -> Option<f64> {
        self.beside.map(|number| self.ratio(&subjects[number]))
    }

    /// The median of another figure of all samples, if all of them have it.
    pub(super) fn median(&self, figure: impl Fn(&S) -> Option<f64>) -> Option<f64> {
        Some(median(self.samples().map(figure).collect::<Option<Vec<_>>>()?.into_iter()))
    }

    pub(super) fn samples(&self) -> impl Iterator<Item = &S> {
        self.rounds.iter().flatten()
    }

    /// How much of the amount is measured in a part of a round.
    fn share(&self, round: usize, part: usize, rounds: usize) -> usize {
        // If there are fewer parts than turns, only the last of some turns measures.
        let turns = PARTS / self.parts;
        if !(part + 1).is_multiple_of(turns) {
            return 0;
        }
        let (number, parts) = (round * self.parts + part / turns, rounds * self.parts);
        self.amount * (number + 1) / parts - self.amount * number / parts
    }

    async fn run(&self, amount: usize) -> anyhow::Result<S> {
        (self.run)(amount).await.with_context(|| format!("{} was not measured", self.name))
    }
}

/// Measures all subjects in rounds, because the speed of a machine changes over time. Prints the figures
/// of each round to stderr, so that a run that is stopped has shown what it measured.
pub(super) async fn measure<S: Sample>(
    title: &str,
    subjects: &mut [Subject<'_, S>],
    rounds: usize,
) -> anyhow::Result<()> {
    for subject in subjects.iter().filter(|subject| subject.warm_up > 0) {
        subject.run(subject.warm_up).await?;
    }
    for round in 0..rounds {
        for subject in &mut *subjects {
            subject.rounds.push(Vec::new());
        }
        for part in 0..PARTS {
            // What one subject leaves to the background slows down the next one. So the order changes.
            let mut in_order: Vec<_> = subjects.iter_mut().collect();
            if round % 2 == 1 {
                in_order.reverse();
            }
            for subject in in_order {
                let amount = subject.share(round, part, rounds);
                if amount > 0 {
                    let sample = subject.run(amount).await?;
                    subject.rounds[round].push(sample);
                }
                if let Some(figure) = figure(&subject.rounds[round]).filter(|_| part + 1 == PARTS) {
                    let (name, unit) = (&subject.name, S::UNIT);
                    // Nobody may read it.
                    let _ = writeln!(
                        io::stderr(),
                        "{title}, round {} of {rounds}: {name}: {figure:.1} {unit}",
                        round + 1
                    );
                }
            }
        }
    }
    Ok(())
}

impl<'a> Subject<'a, Times> {
    /// Repeats an action, and measures each time.
    pub(super) fn timed<F: Future<Output = anyhow::Result<()>> + 'a>(
        name: &'static str,
        amount: usize,
        action: impl Fn() -> F + Copy + 'a,
    ) -> Self {
        Self::new(name, amount, move |count| async move {
            let mut times = Vec::new();
            for _ in 0..count {
                let begun = Instant::now();
                action().await?;
                times.push(begun.elapsed());
            }
            Ok(Times { times, work: Vec::new() })
        })
    }

    pub(super) fn count(&self) -> usize {
        self.samples().map(|sample| sample.times.len()).sum()
    }

    /// The time in microseconds that this part of all times does not exceed; 0 if there are none.
    pub(super) fn quantile_us(&self, part: f64) -> f64 {
        quantile_us(self.samples().flat_map(|sample| sample.times.iter().copied()).collect(), part)
    }

    /// What all servers did, in all.
    pub(super) fn work(&self) -> Work {
        self.samples().flat_map(|sample| sample.work.iter().cloned()).sum()
    }

    /// What all servers did, in the mean of all repetitions, if that was counted.
    pub(super) fn mean(&self, count: impl Fn(&Work) -> u64) -> Option<f64> {
        let is_counted = self.samples().any(|sample| !sample.work.is_empty());
        is_counted.then(|| count(&self.work()) as f64 / self.count() as f64)
    }
}

fn figure<S: Sample>(samples: &[S]) -> Option<f64> {
    (!samples.is_empty()).then(|| median(samples.iter().map(S::figure)))
}

/// The upper one of two in the middle; not a number if there are none.
fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<_> = figures.collect();
    figures.sort_unstable_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

fn quantile_us(mut times: Vec<Duration>, part: f64) -> f64 {
    times.sort_unstable();
    let rank = (part * times.len() as f64).ceil() as usize;
    times.get(rank.saturating_sub(1)).copied().unwrap_or_default().as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(amount: usize) -> Subject<'static, Times> {
        // Each repetition takes 1 us more than the one before.
        Subject::new("a subject", amount, |count| async move {
            let times = (1..=count as u64).rev().map(Duration::from_micros).collect();
            Ok(Times { times, work: Vec::new() })
        })
    }

    #[tokio::test]
    async fn amounts_are_split_over_the_parts_of_all_rounds() {
        let mut subjects =
            [subject(500), subject(7), subject(20).once_a_round(), subject(3).once_a_round()];
        measure("here", &mut subjects, 5).await.unwrap();
        assert_eq!(subjects.each_ref().map(Subject::count), [500, 7, 20, 3]);
        let samples = subjects.each_ref().map(|subject| subject.samples().count());
        assert_eq!(samples, [50, 7, 5, 3]);
    }

    #[tokio::test]
    async fn quantiles_are_measured_times() {
        let mut subjects = [subject(100).once_a_round()];
        measure("here", &mut subjects, 1).await.unwrap();
        assert_eq!([0.5, 0.99, 1.0].map(|part| subjects[0].quantile_us(part)), [50.0, 99.0, 100.0]);
    }

    #[test]
    fn slow_moment_does_not_change_the_ratio() {
        let [mut fast, mut slow, mut whole] = [subject(0), subject(0), subject(0)];
        for machines in [[1, 1, 9], [5, 5, 1], [1, 7, 1]] {
            let sample = |micros: u64| {
                move |machine| Times {
                    times: vec![Duration::from_micros(micros * machine); 3],
                    work: Vec::new(),
                }
            };
            fast.rounds.push(machines.map(sample(10)).into());
            slow.rounds.push(machines.map(sample(15)).into());
            whole.rounds.push(vec![sample(30)(machines[1])]);
        }
        assert_eq!(slow.ratio(&fast), 1.5);
        assert_eq!(whole.ratio(&fast), 3.0, "by rounds");
    }
}
