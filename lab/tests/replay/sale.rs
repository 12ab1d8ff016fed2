//! A sale with many buyers.

use super::outcome;

#[tokio::test]
async fn sale_is_oversold_under_a_lock_and_not_with_its_tokens() {
    let ends = outcome("flash-sale").await;
    let facts = |world: &str| {
        ["buyers", "items", "sold", "left", "rejected"]
            .map(|fact| ends[world][fact].as_u64().unwrap())
    };
    assert_eq!(facts("lock"), [1000, 20, 40, 0, 0], "what was sold out was sold again");
    assert_eq!(facts("lock-and-fence"), [1000, 20, 20, 0, 1]);
    assert_eq!(facts("watch-multi-exec"), [1000, 20, 20, 0, 0]);

    let aborted = |world: &str| ends[world]["transactions_aborted"].as_u64().unwrap();
    assert_eq!(["lock", "lock-and-fence"].map(aborted), [0, 0]);
    assert!(aborted("watch-multi-exec") >= 200, "{ends}");
}
