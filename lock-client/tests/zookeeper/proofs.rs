//! What proves that a session has its full time.

use std::time::Duration;

use lock_client::{Moment, backend::Backend};
use testbed::ZooKeeper;
use tokio::time::sleep;
use zookeeper_client::{Acls, Client, CreateMode};

use super::service::{acquired, client, secs};
use crate::names::name;

const TTL: u64 = 12;
/// How long the clients are silent before the renewal: less than until their next ping, which a
/// follower would report to the leader.
const SILENCE: Duration = Duration::from_millis(1_500);

/// A follower answers a renewal, and is cut off before it reports its sessions to the leader. The leader
/// must know of the renewal nevertheless. The control is a client that writes, and connects not anew.
#[tokio::test]
async fn renewal_counts_although_its_follower_is_cut_off_right_behind_the_answer() {
    let mut was_cut_off_in_time = false;
    // On a busy machine, the follower may report in time.
    for _ in 0..8 {
        let mut zookeeper = ZooKeeper::start_cluster().await.unwrap();
        let leader = zookeeper.leader_among(&[0, 1, 2]).await.unwrap();
        let follower = (leader + 1) % 3;
        let [near, far] =
            [follower, leader].map(|number| format!("zookeeper://{}", zookeeper.address(number)));
        let (locks, elsewhere) = (client(&near), client(&far));
        let ttl = secs(TTL);
        let lock = acquired(&locks, &name("r"), ttl).await;
        let connector = || Client::connector().with_session_timeout(ttl.as_duration());
        let control = connector().connect(&zookeeper.address(follower).to_string()).await.unwrap();
        let observer = connector().connect(&zookeeper.address(leader).to_string()).await.unwrap();
        let ephemeral = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
        control.create("/control", b"", &ephemeral).await.unwrap();
        elsewhere.status(&name("r")).await.unwrap();
        sleep(SILENCE).await;
        let asked = Moment::now();
        let renewed = locks.renew(&name("r"), &lock.ownership, ttl).await.unwrap();
        control.set_data("/control", b"renewed", None).await.unwrap();
        zookeeper.process(follower).pause().await.unwrap();
        assert_eq!(renewed, Some(lock.token));
        let mut ended_after = None;
        while asked.elapsed() < ttl.reliable() {
            let held = elsewhere.status(&name("r")).await.unwrap().held;
            // An answer that comes too late says nothing.
            if asked.elapsed() < ttl.reliable() {
                assert_eq!(held.map(|held| held.token), renewed, "after {:?}", asked.elapsed());
            }
            if observer.check_stat("/control").await.unwrap().is_none() {
                ended_after.get_or_insert(asked.elapsed());
            }
            sleep(Duration::from_millis(50)).await;
        }
        zookeeper.process(follower).resume().unwrap();
        if ended_after.is_some() {
            was_cut_off_in_time = true;
            break;
        }
    }
    assert!(was_cut_off_in_time, "the control: its session ends earlier");
}
