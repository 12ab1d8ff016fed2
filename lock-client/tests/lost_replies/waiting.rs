//! The requests of a waiter: a place in the queue, a notification, and the lock when it is free.

use super::*;
use testbed::proxy::Hold;

with_every_fault! {
    waiter_in_the_queue_that_gives_up_leaves_it,
    waiter_that_gave_up_is_not_left_in_the_queue,
    waiter_that_is_dropped_leaves_the_queue,
    woken_waiter_is_granted_the_lock,
    first_in_the_queue_is_granted_the_lock,
    subscription_is_made,
}

/// A text of the request that releases a lock or leaves the queue. Waiters in the queue send it in
/// no other request.
const RELEASE: &str = "fenced:{r}:freed\r\n";
const SUBSCRIBE: &str = "$9\r\nSUBSCRIBE\r\n";

fn patient() -> Terms {
    lasting().wait(PATIENCE)
}

/// Long enough for the waiter to reach the queue once the fault is over.
const TIME_TO_WAIT: Duration = Duration::from_secs(5);

async fn waiter_in_the_queue_that_gives_up_leaves_it(fault: Fault) {
    let mut service = Service::start().await;
    let other = service.near.acquire(&name("r"), lasting()).await.unwrap();
    let (near, far) = (service.near.clone(), service.far.clone());
    let stands = async || Ok(near.status(&name("r")).await.is_ok_and(|it| it.queued == 1));
    let name = name("r");
    let step = async {
        let waiter = far.acquire(&name, lasting().wait(TIME_TO_WAIT).fair());
        tokio::join!(waiter, until_async(PATIENCE, stands))
    };
    let (busy, stood) = service.during(fault, step).await;
    stood.expect("it stood there, once");
    assert!(matches!(busy, Err(AcquireError::Contended { .. })), "{busy:?}");
    assert_eq!(service.near.status(&name).await.unwrap().queued, 0);
    assert_eq!(other.release().await.unwrap(), Released::Released);
    service.assert_nothing_is_left(33).await;
}

async fn waiter_that_gave_up_is_not_left_in_the_queue(fault: Fault) {
    let service = Service::start().await;
    let other = service.near.acquire(&name("r"), lasting()).await.unwrap();
    let hangs = service.strike(fault, RELEASE);
    let busy =
        service.far.acquire(&name("r"), lasting().wait(Duration::from_millis(200)).fair()).await;
    assert!(matches!(busy, Err(AcquireError::Contended { .. })), "{busy:?}");
    until(PATIENCE, || Ok(service.proxy.has_struck())).await.unwrap();
    drop(hangs);
    // Only the tries of others would remove a silent waiter, and nobody else tries.
    let left = async || Ok(service.near.status(&name("r")).await.is_ok_and(|it| it.queued == 0));
    until_async(PATIENCE, left).await.expect("it has left");
    assert_eq!(other.release().await.unwrap(), Released::Released);
    service.assert_nothing_is_left(33).await;
}

async fn waiter_that_is_dropped_leaves_the_queue(fault: Fault) {
    let mut service = Service::start().await;
    let other = service.near.acquire(&name("r"), lasting()).await.unwrap();
    let far = service.far.clone();
    let waiter = tokio::spawn(async move {
        let name = name("r");
        far.acquire(&name, patient().fair()).await
    });
    service.queued(1).await;
    let near = service.near.clone();
    let leaves = async {
        waiter.abort();
        let left = async || Ok(near.status(&name("r")).await.is_ok_and(|it| it.queued == 0));
        // Only the tries of others would remove a silent waiter, and nobody else tries.
        until_async(PATIENCE, left).await
    };
    service.during(fault, leaves).await.expect("it has left");
    assert_eq!(other.release().await.unwrap(), Released::Released);
    service.assert_nothing_is_left(33).await;
}

async fn woken_waiter_is_granted_the_lock(fault: Fault) {
    granted_when_freed(fault, patient()).await;
}

async fn first_in_the_queue_is_granted_the_lock(fault: Fault) {
    granted_when_freed(fault, patient().fair()).await;
}

async fn granted_when_freed(fault: Fault, terms: Terms) {
    let mut service = Service::start().await;
    let other = service.near.acquire(&name("r"), lasting()).await.unwrap();
    let far = service.far.clone();
    let waiter = waiting(&service.redis, &far, terms).await;
    let step = async { tokio::join!(other.release(), waiter).1.unwrap() };
    let lease = service.during(fault, step).await.unwrap();
    assert_eq!(lease.token(), Ok(token(34)));
    let held = service.near.status(&name("r")).await.unwrap();
    assert_eq!((held.held.unwrap().token, held.queued), (token(34), 0));
    assert_eq!(lease.release().await.unwrap(), Released::Released);
    service.assert_nothing_is_left(34).await;
}

#[tokio::test]
async fn waiter_whose_wakeup_is_lost_tries_by_itself() {
    let service = Service::start().await;
    let other = service.near.acquire(&name("r"), lasting()).await.unwrap();
    let waiter = waiting(&service.redis, &service.far, patient()).await;
    service.proxy.lose_message("freed");
    other.release().await.unwrap();
    // It tries when it has subscribed again, and not only after its longest sleep of 5 seconds.
    let lease = tokio::time::timeout(Duration::from_secs(4), waiter).await;
    let lease = lease.expect("it looked").unwrap().unwrap();
    assert!(service.proxy.has_struck());
    assert_eq!(lease.token(), Ok(token(34)));
    lease.release().await.unwrap();
    service.assert_nothing_is_left(34).await;
}

async fn subscription_is_made(fault: Fault) {
    let service = Service::start().await;
    let other = service.near.acquire(&name("r"), lasting()).await.unwrap();
    let far = service.far.clone();
    let scripts_before = scripts_run(&service.redis).await;
    let held = service.strike(fault, SUBSCRIBE);
    let waiter = tokio::spawn(async move { far.acquire(&name("r"), patient()).await });
    let _hangs = match held {
        Some(held) => Some(held.caught().await.unwrap()),
        None => None,
    };
    until_waiting(&service.redis, scripts_before).await;
    until(PATIENCE, || Ok(service.proxy.has_struck())).await.unwrap();
    other.release().await.unwrap();
    let lease = waiter.await.unwrap().unwrap();
    assert_eq!(lease.token(), Ok(token(34)));
    lease.release().await.unwrap();
    service.assert_nothing_is_left(34).await;
}

impl Service {
    /// Applies a fault to the next request that contains a text. A request that hangs does so until
    /// the returned value is dropped, and its connection with it.
    fn strike(&self, fault: Fault, text: &str) -> Option<Hold> {
        match fault {
            Fault::LostRequest => self.proxy.lose_request(text),
            Fault::LostReply => self.proxy.lose_reply_to(text),
            Fault::Hang => return Some(self.proxy.hold(text)),
        }
        None
    }
}
