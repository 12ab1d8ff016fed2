//! A request is held back, and delivered later, or late, or never.

use testbed::wait::until_async;

use super::*;

#[tokio::test]
async fn held_request_is_executed_when_it_is_delivered_and_its_client_gets_the_reply() {
    let (redis, proxy) = start().await;
    let hold = proxy.hold("stock");
    assert_eq!(increment_anew(&proxy, "other").await.unwrap(), 1, "it is about another key");
    let connection = connect(&proxy).await.unwrap();
    let [mut first, mut second] = [(); 2].map(|()| connection.clone());
    assert!(!proxy.has_struck());
    let delivery = async {
        let held = hold.caught().await.unwrap();
        assert!(proxy.has_struck());
        assert_eq!(increment_anew(&proxy, "stock").await.unwrap(), 1, "one request is held");
        assert_eq!(value(&redis, "behind").await, None, "its connection stands still");
        held.deliver();
    };
    let (held, behind, ()) =
        tokio::join!(increment(&mut first, "stock"), increment(&mut second, "behind"), delivery);
    assert_eq!((held.unwrap(), behind.unwrap()), (2, 1));
}

#[tokio::test]
async fn held_request_whose_client_was_cut_off_is_executed_at_each_delivery() {
    for framing in [Framing::Chunks, Framing::Resp] {
        let redis = Redis::start().await.unwrap();
        let proxy = Proxy::start_framed(redis.socket(), framing).await.unwrap();
        let hold = proxy.hold("stock");
        let (unanswered, late) = tokio::join!(increment_anew(&proxy, "stock"), async {
            hold.caught().await.unwrap().cut()
        });
        assert!(unanswered.unwrap_err().is_connection_dropped());
        assert_eq!(value(&redis, "stock").await, None);
        assert_eq!(increment_anew(&proxy, "stock").await.unwrap(), 1);
        assert_eq!(late.deliver().await.unwrap(), ":2\r\n");
        assert_eq!(late.deliver().await.unwrap(), ":3\r\n");
        assert_eq!(increment_anew(&proxy, "stock").await.unwrap(), 4);
    }
}

#[tokio::test]
async fn held_request_is_lost_if_nobody_delivers_it() {
    let (redis, proxy) = start().await;
    drop(proxy.hold("stock"));
    assert!(increment_anew(&proxy, "stock").await.unwrap_err().is_connection_dropped());
    let hold = proxy.hold("stock");
    let (lost, ()) =
        tokio::join!(increment_anew(&proxy, "stock"), async { drop(hold.caught().await.unwrap()) });
    assert!(lost.unwrap_err().is_connection_dropped());
    assert_eq!(value(&redis, "stock").await, None);
}

#[tokio::test]
async fn late_requests_are_waited_for() {
    let redis = Redis::start().await.unwrap();
    let proxy = Proxy::start_framed(redis.socket(), Framing::Resp).await.unwrap();
    let late = Duration::from_millis(200);
    proxy.add(testbed::proxy::SeededFaults::new(33, 0, vec![(1.0, Verdict::Late(late))]));
    proxy.all_executed().await.unwrap();
    let mut connection = connect(&proxy).await.unwrap();
    let script = redis::cmd("EVAL").arg("return redis.call('INCR', 'stock')").arg(0).to_owned();
    script.exec_async(&mut connection).await.unwrap_err();
    proxy.all_executed().await.unwrap();
    assert_eq!(value(&redis, "stock").await.as_deref(), Some("1"));
    until_async(PATIENCE, async || Ok(redis.info("connected_clients").await? == "1"))
        .await
        .expect("no connection of the proxy is left");
}
