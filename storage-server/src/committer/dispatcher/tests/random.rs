//! Random jobs, and a store that fails in many ways.

use super::*;
use crate::operation::{Condition, Content, Outcome, Versions};

/// Whatever fails, each job is answered, and takes effect once, or not at all if that is its answer. No token
/// goes down from one version to the next, and each condition was met by the version before.
#[tokio::test(start_paused = true)]
async fn answers_are_true_whatever_fails() {
    const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
    let mut rejected = 0;
    let mut conditional = 0;
    for seed in 0..30 {
        let (store, queue, committer) = start();
        let mut random = fastrand::Rng::with_seed(seed);
        *store.failures.lock().unwrap() = Some(fastrand::Rng::with_seed(seed));
        let mut jobs = Vec::new();
        for number in 0..300 {
            let names: Vec<_> = match random.u8(..3) {
                0 => NAMES.into_iter().filter(|_| random.bool()).collect(),
                _ => vec![NAMES[random.usize(..NAMES.len())]],
            };
            if names.is_empty() {
                continue;
            }
            let token = random.u64(number / 100 + 1..number / 100 + 3);
            let expected = (random.u8(..3) == 0).then(|| random.u64(..number / 3 + 1));
            let if_match = expected.map(|version| Versions::Listed(vec![version]));
            let content = Content { content_type: "text/plain".to_owned(), bytes: vec![0].into() };
            let condition = Condition { if_match, if_none_match: None };
            let write = Action::Write { content, condition };
            let submitted = submit(&queue, &names, token, write);
            jobs.push((names, token, expected, submitted));
            if random.u8(..4) == 0 {
                sleep(Duration::from_millis(random.u64(..10))).await;
            }
        }
        committer.drain().await.unwrap();
        let mut certain: HashMap<_, Vec<_>> = HashMap::new();
        let mut possible = HashMap::new();
        for (names, token, expected, job) in jobs {
            match job.await.unwrap() {
                Ok(decided) if decided.is_rejection() => rejected += 1,
                Ok(decided) => {
                    for (name, write) in names.into_iter().zip(decided.writes) {
                        let Outcome::Written { version, .. } = write.outcome else {
                            assert!(expected.is_some(), "{:?}", write.outcome);
                            continue;
                        };
                        certain.entry(name).or_default().push((version, token));
                        assert!(expected.is_none_or(|expected| version == expected + 1), "{seed}");
                        conditional += usize::from(expected.is_some());
                    }
                }
                Err(Unavailable { outcome: UnavailableOutcome::Unknown, .. }) => {
                    names.into_iter().for_each(|name| *possible.entry(name).or_insert(0) += 1);
                }
                Err(_) => {}
            }
        }
        let rows = store.rows.lock().unwrap();
        for name in NAMES {
            let resource: ResourceName = name.parse().unwrap();
            let overtaken = store.overtaken.lock().unwrap();
            let of_rivals = overtaken.iter().filter(|overtaken| **overtaken == resource).count();
            let version = rows[&resource].version;
            let mut certain = certain.remove(name).unwrap_or_default();
            certain.sort_unstable();
            assert!(certain.iter().all(|(made, _)| *made <= version), "{seed}");
            for pair in certain.windows(2) {
                let [(version, token), (next_version, next_token)] = pair else { unreachable!() };
                assert!(version < next_version && token <= next_token, "{seed}: {pair:?}");
            }
            let certain = certain.len() + of_rivals;
            let possible = certain + possible.get(name).copied().unwrap_or(0);
            assert!((certain..=possible).contains(&(version as usize)), "{seed}: {version}");
        }
    }
    assert!(rejected > 0 && conditional > 0, "{rejected} and {conditional}");
}
