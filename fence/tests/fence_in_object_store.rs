//! The fence in object storage: what it promises beyond the rule.

mod answers;
mod choices;
mod collecting;
mod every_fault;
mod faulty;
mod lost_answers;
mod mistakes;
pub(crate) mod real_server;
mod recorded;
mod registers;
mod replaced;

use fence::{
    Fence, Rejection,
    object_store::{Content, Outcome, RegisterError},
};

use crate::names::token;

fn offer(number: u64, holder: &str) -> Fence {
    Fence { token: token(number), holder: holder.parse().unwrap() }
}

fn applied(outcome: Result<Outcome<Content>, RegisterError>) -> Content {
    match outcome.unwrap() {
        Outcome::Applied(content) => content,
        other => panic!("{other:?}"),
    }
}

fn rejected(outcome: Result<Outcome<Content>, RegisterError>) -> Rejection {
    match outcome.unwrap() {
        Outcome::Rejected(rejection) => rejection,
        other => panic!("{other:?}"),
    }
}

fn is_unknown(outcome: &Result<Outcome<Content>, RegisterError>) -> bool {
    matches!(outcome, Ok(Outcome::Unknown(_)))
}
