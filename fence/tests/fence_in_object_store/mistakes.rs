//! Registers as they are written first. Each has one mistake, and the same check finds it.

use std::sync::Arc;

use async_trait::async_trait;
use fence::{Decision, Fence, Holder, Token, decide, object_store::Failure};
use object_store::{
    Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions, UpdateVersion, path::Path,
};
use serde_json::{Value, json};

use super::{
    every_fault::{Client, Plan, Seen, WRITERS, check},
    faulty::{Faulty, Limits},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    /// Reads the fence, and then writes without a condition.
    HeadThenPut,
    /// Takes a failed condition for a write that was not applied.
    ConditionFailed,
    /// Takes any error for a write that was not applied.
    ErrorMeansFailure,
    /// Takes a rejection by the store for a write that was not applied, although it was sent before.
    LastAnswerDecides,
    /// Reads back, and takes a version beyond its own for a rejection.
    BeyondMeansRejected,
    /// Reads back, and takes a register that did not change for a write that was not applied.
    UnchangedMeansNotApplied,
    /// Reads back, and writes anew, under a new id, when the register did not change.
    NewWriteId,
    /// Reads back, and takes any write with its own token for its own.
    TokenInsteadOfWriteId,
}

/// A register with one of the mistakes.
struct Mistaken {
    store: Arc<Faulty>,
    mistake: Mistake,
    /// Whether it claims only, so that the check must find the mistake in a claim.
    only_claims: bool,
    writes: u64,
}

struct Read {
    version: u64,
    fence: Option<Fence>,
    write_id: String,
    e_tag: Option<String>,
}

impl Mistaken {
    async fn read(&self) -> Result<Read, Error> {
        let answer = match self.store.get(&Path::from("r/fence.register")).await {
            Ok(answer) => answer,
            Err(Error::NotFound { .. }) => {
                return Ok(Read { version: 0, fence: None, write_id: String::new(), e_tag: None });
            }
            Err(error) => return Err(error),
        };
        let e_tag = answer.meta.e_tag.clone();
        let bytes = answer.bytes().await?;
        let header = bytes.split(|&byte| byte == b'\n').next().unwrap();
        let header: Value = serde_json::from_slice(header).unwrap();
        let token = Token::new(header["token"].as_u64().unwrap()).unwrap();
        let holder: Holder = header["holder"].as_str().unwrap().parse().unwrap();
        Ok(Read {
            version: header["version"].as_u64().unwrap(),
            fence: Some(Fence { token, holder }),
            write_id: header["write_id"].as_str().unwrap().to_owned(),
            e_tag,
        })
    }

    async fn put(&mut self, offered: &Fence, value: &str) -> Seen {
        for _ in 0..8 {
            let Ok(read) = self.read().await else {
                return Seen::Unchanged;
            };
            let decision = decide(read.fence.as_ref(), offered);
            if matches!(decision, Decision::Stale | Decision::HolderConflict) {
                return Seen::Rejected;
            }
            self.writes += 1;
            let write_id = format!("mine-{}", self.writes);
            let header = json!({
                "format": 1,
                "token": offered.token.as_u64(),
                "holder": offered.holder.as_str(),
                "version": read.version + 1,
                "write_id": write_id,
                "earlier_write_ids": [],
                "value": {"inline": {"bytes": value.len()}},
            });
            let mode = match &read.e_tag {
                _ if self.mistake == Mistake::HeadThenPut => PutMode::Overwrite,
                None => PutMode::Create,
                Some(e_tag) => {
                    PutMode::Update(UpdateVersion { e_tag: Some(e_tag.clone()), version: None })
                }
            };
            if let Some(seen) = self.send(&read, offered, write_id, header, value, mode).await {
                return seen;
            }
        }
        Seen::Unknown
    }

    /// Returns `None` if the write must be decided again.
    async fn send(
        &self,
        read: &Read,
        offered: &Fence,
        write_id: String,
        header: Value,
        value: &str,
        mode: PutMode,
    ) -> Option<Seen> {
        let payload = format!("{header}\n{value}");
        let location = Path::from("r/fence.register");
        let applied = Seen::Applied(read.version + 1);
        for _ in 0..4 {
            let options = PutOptions::from(mode.clone());
            match self.store.put_opts(&location, payload.clone().into(), options).await {
                Ok(_) => return Some(applied),
                Err(Error::Precondition { .. } | Error::AlreadyExists { .. })
                    if self.mistake == Mistake::ConditionFailed =>
                {
                    return None;
                }
                Err(_) if self.mistake == Mistake::ErrorMeansFailure => {
                    return Some(Seen::Unchanged);
                }
                Err(error)
                    if self.mistake == Mistake::LastAnswerDecides
                        && Failure::from_error(&error).is_rejection() =>
                {
                    return Some(Seen::Unchanged);
                }
                Err(_) => {}
            }
            let Ok(back) = self.read().await else {
                return Some(Seen::Unknown);
            };
            let is_own_token = back.fence.as_ref() == Some(offered);
            match back.version - read.version {
                0 if self.mistake == Mistake::UnchangedMeansNotApplied => {
                    return Some(Seen::Unchanged);
                }
                0 if self.mistake == Mistake::NewWriteId => return None,
                0 => {}
                1 if back.write_id == write_id => return Some(applied),
                1 if self.mistake == Mistake::TokenInsteadOfWriteId && is_own_token => {
                    return Some(applied);
                }
                1 => return None,
                _ if self.mistake == Mistake::BeyondMeansRejected => return None,
                _ => return Some(Seen::Unknown),
            }
        }
        Some(Seen::Unknown)
    }
}

#[async_trait]
impl Client for Mistaken {
    async fn claim(&mut self, offered: &Fence) -> Seen {
        self.put(offered, "claimed").await
    }

    async fn write(&mut self, offered: &Fence, value: String) -> Seen {
        if self.only_claims {
            return Seen::Unknown;
        }
        self.put(offered, &value).await
    }
}

#[tokio::test(start_paused = true)]
async fn check_finds_each_mistake() {
    let mistakes = [
        (Mistake::HeadThenPut, "replaced unseen"),
        (Mistake::ConditionFailed, "applied"),
        (Mistake::ErrorMeansFailure, "and applied"),
        (Mistake::LastAnswerDecides, "and applied"),
        (Mistake::BeyondMeansRejected, "applied"),
        (Mistake::UnchangedMeansNotApplied, "and applied"),
        (Mistake::NewWriteId, "applied"),
        (Mistake::TokenInsteadOfWriteId, "not applied"),
    ];
    let limits = Limits { faults: 2, rivals: 2 };
    let plan = Plan { limits, rivals: WRITERS, value_bytes: 0, is_known_without_faults: false };
    for (mistake, violation) in mistakes {
        for only_claims in [false, true] {
            let mistaken = |store| -> Box<dyn Client> {
                Box::new(Mistaken { store, mistake, only_claims, writes: 0 })
            };
            let found = check(plan, mistaken).await;
            let found = found.expect_err(&format!("{mistake:?} is not found"));
            assert!(found.contains(violation), "{mistake:?}: {found}");
        }
    }
}
