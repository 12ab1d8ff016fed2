//! A message with a text in it is lost once.

use futures_util::StreamExt;
use testbed::proxy::Framing;

use super::*;

#[tokio::test]
async fn lost_request_is_not_executed_and_its_connection_ends() {
    let (redis, proxy) = start().await;
    let mut bystander = connect(&proxy).await.unwrap();
    proxy.lose_request("stock");
    assert_eq!(increment_anew(&proxy, "other").await.unwrap(), 1, "it is about another key");
    assert!(!proxy.has_struck());

    assert!(increment_anew(&proxy, "stock").await.unwrap_err().is_connection_dropped());
    assert!(proxy.has_struck());
    assert_eq!(value(&redis, "stock").await, None);
    assert_eq!(increment_anew(&proxy, "stock").await.unwrap(), 1, "one request is lost, not two");
    assert_eq!(increment(&mut bystander, "stock").await.unwrap(), 2, "one connection ends");
    assert_eq!(proxy.requests("stock"), 3, "the lost request is counted too");
}

#[tokio::test]
async fn reply_about_a_key_is_lost_once_and_what_it_replied_to_is_done() {
    let (redis, proxy) = start().await;
    proxy.lose_reply_to("stock");
    redis.set("stock", "no number").await.unwrap();
    assert_eq!(increment_anew(&proxy, "else").await.unwrap(), 1, "it is about another key");
    assert!(!increment_anew(&proxy, "stock").await.unwrap_err().is_io_error(), "it is an error");

    redis.set("stock", "32").await.unwrap();
    assert!(!proxy.has_struck());
    assert!(increment_anew(&proxy, "stock").await.unwrap_err().is_io_error());
    assert!(proxy.has_struck());
    assert_eq!(value(&redis, "stock").await.as_deref(), Some("33"));
    assert_eq!(increment_anew(&proxy, "stock").await.unwrap(), 34);
}

/// Replies are matched to their requests: the reply before the lost one arrives.
#[tokio::test]
async fn reply_is_lost_that_belongs_to_the_request_among_others_on_its_connection() {
    let redis = Redis::start().await.unwrap();
    let proxy = Proxy::start_framed(redis.socket(), Framing::Resp).await.unwrap();
    proxy.lose_reply_to("stock");
    let connection = connect(&proxy).await.unwrap();
    let [mut first, mut second, mut third] = [(); 3].map(|()| connection.clone());
    let (before, lost, after) = tokio::join!(
        increment(&mut first, "before"),
        increment(&mut second, "stock"),
        increment(&mut third, "after"),
    );
    assert_eq!(before.unwrap(), 1);
    assert!(lost.unwrap_err().is_connection_dropped());
    assert!(after.unwrap_err().is_connection_dropped());
    assert_eq!(value(&redis, "stock").await.as_deref(), Some("1"));
}

#[tokio::test]
async fn message_that_answers_no_request_is_lost_with_its_connection() {
    for framing in [Framing::Chunks, Framing::Resp] {
        let redis = Redis::start().await.unwrap();
        let proxy = Proxy::start_framed(redis.socket(), framing).await.unwrap();
        let subscribe = async || {
            let client = Client::open(proxy.url("redis")).unwrap();
            let mut subscriber = client.get_async_pubsub().await.unwrap();
            subscriber.subscribe("news").await.unwrap();
            subscriber.into_on_message()
        };
        let mut subscriber = subscribe().await;
        proxy.lose_message("thirty-three");
        redis.command::<u64>(&["PUBLISH", "news", "thirty-two"]).await.unwrap();
        let news = subscriber.next().await.unwrap();
        assert_eq!(news.get_payload::<String>().unwrap(), "thirty-two");
        assert!(!proxy.has_struck());

        redis.command::<u64>(&["PUBLISH", "news", "thirty-three"]).await.unwrap();
        assert!(subscriber.next().await.is_none(), "the connection ends instead");
        assert!(proxy.has_struck());
        let mut subscriber = subscribe().await;
        redis.command::<u64>(&["PUBLISH", "news", "thirty-three"]).await.unwrap();
        let news = subscriber.next().await.unwrap();
        assert_eq!(news.get_payload::<String>().unwrap(), "thirty-three");
    }
}
