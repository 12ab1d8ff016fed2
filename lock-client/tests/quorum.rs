//! What etcd and ZooKeeper both do. Each test runs on either.

/// Makes a test of each service out of each of these functions.
macro_rules! test_each_service {
    ($($test:ident),+ $(,)?) => {
        mod etcd {
            $(#[tokio::test]
            async fn $test() {
                super::$test::<testbed::Etcd>().await;
            })+
        }
        mod zookeeper {
            $(#[tokio::test]
            async fn $test() {
                super::$test::<testbed::ZooKeeper>().await;
            })+
        }
    };
}

mod cluster;
mod holding;
mod reissue;
pub(crate) mod service;
mod waiting;
