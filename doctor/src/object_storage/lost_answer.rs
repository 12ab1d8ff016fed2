//! What a client sees after the answer to its write was lost.

use anyhow::bail;
use fence::{
    Fence, Holder, Token,
    object_store::{Outcome, Registers},
};
use object_store::PutMode;

use super::{
    fit_if,
    site::{Site, is_rejection, put},
    wire::Wire,
};
use crate::check::Check;

const WHY: &str = "a client must find its own write, once, after the store's client has repeated the request by \
                   itself";

/// Loses the answers to two writes, which the client of the store repeats: one of an object, and one of a
/// register, which has to find out that it was applied.
pub(super) async fn check(site: &Site) -> anyhow::Result<Check> {
    let wire = Wire::default();
    let store = site.repeating_client(&wire)?;

    // 1. An object: what does a client see that does not read back?
    let path = site.path("answer-lost");
    let first = put(&*store, &path, "first", PutMode::Create).await?;
    wire.take_statuses();
    wire.lose_next_answer();
    let seen = match put(&*store, &path, "second", PutMode::Update(first.into())).await {
        Ok(_) => "a success".to_owned(),
        Err(error) if is_rejection(&error) => "a rejection of its own write".to_owned(),
        Err(error) => format!("an error: {error}"),
    };
    let statuses: Vec<_> = wire.take_statuses().iter().map(u16::to_string).collect();
    let seen = format!("the client sees {seen} ({})", statuses.join(" lost, then "));

    // 2. A register.
    let offered = Fence { token: Token::new(34)?, holder: Holder::random() };
    let registers = Registers::new(store, site.folder.clone());
    let mut register = registers.register(&"lost-answer".parse()?);
    let Outcome::Applied(claimed) = register.claim(&offered).await? else {
        bail!("the claim of a new register was not applied");
    };
    wire.lose_next_answer();
    let written = register.write(&offered, "once".into()).await?;
    let rest = Registers::new(site.store.clone(), site.folder.clone());
    let read = rest.register(&"lost-answer".parse()?).read().await?;
    let is_there_once = read.version == claimed.version + 1 && read.value == Some("once".into());
    let (is_fit, found) = match written {
        Outcome::Applied(_) if is_there_once => (true, "a register finds its write"),
        Outcome::Applied(_) => (false, "a register finds its write, which is not there"),
        Outcome::Rejected(_) => (false, "a register takes its write for rejected"),
        Outcome::Unknown(_) => (false, "a register does not find its write"),
    };
    Ok(fit_if(is_fit, "lost_answer", format!("{seen}; {found}"), WHY))
}
