//! Clients whose connection broke.

use serde_json::json;

use super::{KEPT, MAX_WRITES, Watching, decide_many, write};
use crate::{
    database::{Database, get},
    wire,
    world::World,
};

#[tokio::test]
async fn client_that_was_cut_off_goes_on_after_the_last_event_that_it_has_seen() {
    let World { server, .. } = World::on_sqlite(&[]).await;
    let (mut watching, begin) = Watching::start(&server).await;
    write(&server, "a", 1).await;
    let a = watching.decision().await;
    drop(watching);
    for missed in ["b", "c"] {
        write(&server, missed, 1).await;
    }
    for (id, expected) in [(&a.id, vec!["b", "c", "d"]), (&begin, vec!["a", "b", "c", "d"])] {
        let (mut watching, first) = Watching::after(&server, id).await;
        assert_eq!((&*first.name, &first.data), ("begin", &json!({"resumed": true})));
        assert_eq!(&first.id, id);
        write(&server, "d", 1).await;
        assert_eq!(watching.resources(expected.len()).await, expected);
    }
}

#[tokio::test]
async fn restarted_server_says_so() {
    let database = Database::sqlite();
    let server = database.serve(&[]).await;
    let (mut watching, _) = Watching::start(&server).await;
    write(&server, "a", 1).await;
    let a = watching.decision().await;
    drop(server);
    assert_eq!(watching.next().await, None, "it was killed");

    let server = database.serve(&[]).await;
    let (mut watching, first) = Watching::after(&server, &a.id).await;
    // With an id, it would miss what it missed if it were cut off now.
    assert_eq!((first.data, &*first.id), (json!({"resumed": false}), ""));
    let missed = watching.next().await.unwrap();
    assert_eq!((&*missed.name, &missed.data), ("missed", &json!({"reason": "restarted"})));
    write(&server, "b", 1).await;
    assert_eq!(watching.resources(1).await, ["b"]);
    // From there, it goes on as usual.
    let (mut watching, first) = Watching::after(&server, &missed.id).await;
    assert_eq!(first.data, json!({"resumed": true}));
    assert_eq!(watching.resources(1).await, ["b"]);
}

#[tokio::test]
async fn client_that_comes_back_too_late_learns_it_and_gets_what_is_kept() {
    let World { server, .. } = World::on_sqlite(&[]).await;
    let (_other, begin) = Watching::start(&server).await;
    for number in 0..=KEPT / MAX_WRITES {
        decide_many(&server, &format!("{number}/")).await;
    }
    let (mut watching, first) = Watching::after(&server, &begin).await;
    assert_eq!((first.data, &*first.id), (json!({"resumed": false}), ""));
    let missed = watching.next().await.unwrap();
    assert_eq!((&*missed.name, &missed.data), ("missed", &json!({"reason": "too-old"})));
    let kept = watching.resources(KEPT).await;
    assert_eq!(kept[0], "1/0", "the first transaction is not kept");
    assert_eq!(kept[KEPT - 1], format!("{}/{}", KEPT / MAX_WRITES, MAX_WRITES - 1));
}

#[tokio::test]
async fn malformed_ids_are_rejected_and_unknown_ones_are_not() {
    let World { server, .. } = World::on_sqlite(&[]).await;
    let (_watching, begin) = Watching::start(&server).await;
    let long = "0".repeat(10_000);
    let upper = begin.to_uppercase().replace(|it: char| it.is_ascii_digit(), "A");
    for wrong in ["x", "-", "1", "0-0", &begin[1..], &format!("{begin}0"), &upper, &long, "ü", "*"]
    {
        let answer =
            wire::request(server.url(), "GET", "/v1/events", &[("Last-Event-ID", wrong)], "").await;
        assert_eq!(answer.problem(), "400 malformed-request", "{wrong}");
    }
    let twice = [("Last-Event-ID", begin.as_str()), ("Last-Event-ID", begin.as_str())];
    let answer = wire::request(server.url(), "GET", "/v1/events", &twice, "").await;
    assert_eq!(answer.problem(), "400 malformed-request");

    let unknown = format!("{}-{}", &begin[..16], "0".repeat(16));
    let other = format!("{}-{}", "f".repeat(16), &begin[17..]);
    for (id, reason) in [(&unknown, "too-old"), (&other, "restarted")] {
        let (mut watching, first) = Watching::after(&server, id).await;
        assert_eq!(first.data, json!({"resumed": false}));
        assert_eq!(watching.next().await.unwrap().data, json!({"reason": reason}));
    }
    // An empty one is none.
    let (_, first) = Watching::after(&server, "").await;
    assert_eq!((&*first.name, &first.id), ("begin", &begin));
    assert_eq!(get(&server, "/livez").await.status, 200);
}
