//! Transactions under the locks of several resources.

use fence::Fence;
use serde_json::json;
use testbed::{Redis, StorageServer};

use super::{get, transact, write_under};
use crate::{
    lock_service::{locks, tried, unrenewed},
    names::{name, token},
    programs::storage_server,
    wire,
};

/// Client 1 has paused with token 33 for one account, and still has the lock of the other one.
#[tokio::test]
async fn late_transfer_under_two_locks_moves_nothing() {
    let redis = Redis::start().await.unwrap();
    redis.set("fenced:{account/a}:token", "32").await.unwrap();
    let server = StorageServer::start(&storage_server(), &[]).await.unwrap();
    let locks = locks(&redis.url());
    let accounts = [name("account/a"), name("account/b")];
    let transfer = |[a, b]: &[Fence; 2], balances: [&str; 2]| {
        json!({"writes": [
            write_under(a, "account/a", balances[0]), write_under(b, "account/b", balances[1]),
        ]})
    };
    let fences = |leases: &[lock_client::Lease]| -> [Fence; 2] {
        [leases[0].fence().unwrap(), leases[1].fence().unwrap()]
    };
    let leases = locks.acquire_all(&accounts, unrenewed(60_000)).await.unwrap();
    let paused = fences(&leases);
    assert_eq!(paused[0].token, token(33));
    assert_eq!(transact(server.url(), &transfer(&paused, ["100", "0"])).await.status, 200);

    // The lock of one account expires, and client 2 acquires it.
    assert_eq!(redis.command::<u64>(&["DEL", "fenced:{account/a}:lock"]).await.unwrap(), 1);
    let next = locks.acquire(&accounts[0], tried(60_000)).await.unwrap();
    assert_eq!(next.token(), Ok(token(34)));
    let paid = json!({"writes": [write_under(&next.fence().unwrap(), "account/a", "10")]});
    assert_eq!(transact(server.url(), &paid).await.status, 200);

    let late = transact(server.url(), &transfer(&paused, ["70", "30"])).await;
    assert_eq!(late.problem(), "409 transaction-rejected");
    let decisions = late.json()["writes"].as_array().unwrap().clone();
    assert_eq!([&decisions[0]["decision"], &decisions[1]["decision"]], ["stale-token", "accepted"]);
    assert_eq!(get(server.url(), "account/a").await.text(), "10");
    assert_eq!(get(server.url(), "account/b").await.text(), "0", "no half of it has happened");

    // The control: two writes are not one transaction.
    for (fence, resource, balance) in
        [(&paused[0], "account/a", "70"), (&paused[1], "account/b", "30")]
    {
        let path = format!("/v1/resources/{resource}");
        let (token, holder) = (fence.token.to_string(), fence.holder.as_str());
        let headers = [("Fencing-Token", token.as_str()), ("Fencing-Holder", holder)];
        wire::request(server.url(), "PUT", &path, &headers, balance).await;
    }
    assert_eq!(get(server.url(), "account/a").await.text(), "10");
    assert_eq!(get(server.url(), "account/b").await.text(), "30", "money that nobody has paid");
}
