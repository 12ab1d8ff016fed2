//! What crosses rooms: lock client, storage server and fences together, and the fences from other
//! languages. The servers are real, each private to one test.

#[path = "../lock-client/cli/tests/command.rs"]
#[expect(dead_code, reason = "each package of tests uses a part of it")]
mod command;
mod command_get;
mod command_in_host;
mod command_put;
mod command_script;
mod conformance;
mod deployments;
mod examples;
mod fences;
mod languages;
#[path = "../lock-client/tests/lock_service.rs"]
#[expect(dead_code, reason = "each package of tests uses a part of it")]
mod lock_service;
#[path = "../lock-client/tests/lossy_service.rs"]
#[expect(dead_code, reason = "each package of tests uses a part of it")]
mod lossy_service;
mod lost_replies;
mod migrations;
#[path = "../fence/tests/names.rs"]
mod names;
mod own_locks;
mod packages;
mod packaging;
mod programs;
mod readme;
mod reissue;
mod server_crashes;
mod server_hammer;
mod server_rivals;
#[path = "../lock-client/cli/tests/services.rs"]
#[expect(dead_code, reason = "each package of tests uses a part of it")]
mod services;
mod stale_holder;
#[path = "../lock-client/tests/start_cluster.rs"]
mod start_cluster;
mod storage_client;
mod storage_tls;
mod transactions;
mod under_a_lock;
#[path = "../storage-server/tests/wire.rs"]
mod wire;
#[expect(dead_code, reason = "each package of tests uses a part of it")]
#[path = "../storage-server/tests/world.rs"]
mod world;
