//! Every step with each fault: a lost request, a lost reply, and a server that hangs for a while.
//! No step that may have been carried out is reported as rejected, and nothing is left behind.

mod holding;
mod waiting;

use std::time::Duration;

use lock_client::{AcquireError, Released, RenewError, Terms, Ttl};
use testbed::wait::{until, until_async};

use crate::lossy_service::{Fault, Service};
use crate::{
    lock_service::{lasting, scripts_run, until_waiting, waiting},
    names::{name, token},
};

const PATIENCE: Duration = Duration::from_secs(30);

/// Runs each test with each fault.
macro_rules! with_every_fault {
    ($($step:ident,)*) => {
        mod lost_request {
            $(#[tokio::test]
            async fn $step() {
                super::$step($crate::lossy_service::Fault::LostRequest).await;
            })*
        }
        mod lost_reply {
            $(#[tokio::test]
            async fn $step() {
                super::$step($crate::lossy_service::Fault::LostReply).await;
            })*
        }
        mod hang {
            $(#[tokio::test]
            async fn $step() {
                super::$step($crate::lossy_service::Fault::Hang).await;
            })*
        }
    };
}
use with_every_fault;
