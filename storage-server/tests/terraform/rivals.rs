//! Many clients that want one lock.

use futures_util::future::join_all;

use super::{STATE, lock, state, token, unlock, upload};
use crate::database::{Database, get, on_empty_databases};

on_empty_databases! {
    of_many_clients_one_acquires_the_lock,
}

/// On PostgreSQL, they are clients of two servers.
async fn of_many_clients_one_acquires_the_lock(database: Database) {
    let one = &database.serve(&[]).await;
    let other = match database.postgres {
        Some(_) => Some(database.serve(&[]).await),
        None => None,
    };
    let two = other.as_ref().unwrap_or(one);
    let mut tokens = Vec::new();
    for round in 0..8 {
        let ids: Vec<_> = (0..8).map(|client| format!("{round}-{client}")).collect();
        let locks = ids
            .iter()
            .enumerate()
            .map(|(client, id)| lock(if client % 2 == 0 { one } else { two }, "", id));
        let answers = join_all(locks).await;
        let mut held = ids.iter().zip(&answers).filter(|(_, answer)| answer.status == 200);
        let (id, locked) = held.next().expect("one acquires it");
        assert!(held.next().is_none(), "{answers:?}");
        let mut others = answers.iter().filter(|answer| answer.status != 200);
        assert!(others.all(|it| it.problem() == "423 state-locked"), "{answers:?}");
        tokens.push(token(locked));
        let written = upload(two, id, &state(round)).await.status;
        assert!([200, 201].contains(&written));
        assert_eq!(get(one, STATE).await.text(), state(round));
        assert_eq!(unlock(one, id).await.status, 200);
    }
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}
