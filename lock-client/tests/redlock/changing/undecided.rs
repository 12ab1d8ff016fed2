//! Changes of the members whose decision the operator does not learn.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use lock_client::redlock::operator::{Operator, OperatorError};
use testbed::{
    NodeKind, Proxy, RedlockNodes,
    proxy::{Rule, Verdict},
};

use super::{MAX_TTL, until_admitted, urls};

/// In the script by which a node accepts a change.
const ACCEPTS: &str = "Accepts a change of the members";
/// In the script by which a node promises.
const PROMISES: &str = "Promises to accept nothing below a ballot";

fn has(request: &[u8], text: &str) -> bool {
    request.windows(text.len()).any(|part| part == text.as_bytes())
}

/// A node executes the first request with this text, and answers nothing from then on.
#[derive(Clone, Debug)]
struct DownAfter {
    text: &'static str,
    is_down: bool,
    is_mended: Arc<AtomicBool>,
}

impl DownAfter {
    fn new(text: &'static str) -> Self {
        Self { text, is_down: false, is_mended: Arc::default() }
    }
}

impl Rule for DownAfter {
    fn on_request(&mut self, request: &[u8]) -> Verdict {
        if self.is_mended.load(SeqCst) {
            Verdict::Pass
        } else if self.is_down {
            Verdict::Drop
        } else if has(request, self.text) {
            self.is_down = true;
            Verdict::DropReply
        } else {
            Verdict::Pass
        }
    }
}

/// Every request with this text is lost.
#[derive(Debug)]
struct Loses(&'static str);

impl Rule for Loses {
    fn on_request(&mut self, request: &[u8]) -> Verdict {
        if has(request, self.0) { Verdict::Drop } else { Verdict::Pass }
    }
}

/// Three members that are reached through proxies alone, and a fourth node.
struct Proxied {
    nodes: RedlockNodes,
    proxies: Vec<Proxy>,
}

impl Proxied {
    async fn start() -> Self {
        let nodes = RedlockNodes::start(&[NodeKind::FORGETFUL; 4]).await.unwrap();
        let mut proxies = Vec::new();
        for node in &nodes.nodes()[..3] {
            proxies.push(Proxy::start(node.socket()).await.unwrap());
        }
        let proxied = Self { nodes, proxies };
        let max_ttl = lock_client::Ttl::new(MAX_TTL).unwrap();
        proxied.operator().start_cluster(max_ttl).await.unwrap();
        proxied
    }

    fn operator(&self) -> Operator {
        Operator::new(&self.urls()).unwrap()
    }

    fn urls(&self) -> Vec<String> {
        self.proxies.iter().map(|proxy| proxy.url("redis")).collect()
    }

    /// Replaces node 1 by node 3.
    async fn replace(&self, operator: &mut Operator) -> Result<Vec<String>, OperatorError> {
        operator.change_members(&urls(&self.nodes, &[3]), &[self.urls()[1].clone()]).await
    }

    /// How many of the members have accepted a change.
    async fn accepted(&self) -> usize {
        let mut accepted = 0;
        for node in &self.nodes.nodes()[..3] {
            let epoch: String = node.command(&["HGET", "fenced:node", "epoch"]).await.unwrap();
            accepted += usize::from(epoch == "2");
        }
        accepted
    }
}

/// All members have accepted the change, and two of them could not say so.
#[tokio::test]
async fn error_of_a_change_that_may_be_decided_says_that_it_may_be_half_done() {
    let proxied = Proxied::start().await;
    let fault = DownAfter::new(ACCEPTS);
    for proxy in &proxied.proxies[1..] {
        proxy.add(fault.clone());
    }
    let mut operator = proxied.operator();
    let error = proxied.replace(&mut operator).await.unwrap_err().to_string();
    assert_eq!(proxied.accepted().await, 3);
    assert!(error.contains("the change of the members may be half done"), "{error}");
    assert!(error.contains("`lock-client node admit --watch` finishes it"), "{error}");
    assert!(error.contains("run the same command again"), "{error}");
    assert!(error.contains("2 of the old members must vote"), "the reason is there: {error}");
    fault.is_mended.store(true, SeqCst);
    let members = proxied.replace(&mut operator).await.unwrap();
    assert_eq!(members.len(), 3, "{members:?}");
    until_admitted(&operator, 1).await;
}

/// The control: nobody was asked to accept anything.
#[tokio::test]
async fn error_of_a_change_that_was_not_proposed_does_not_call_it_half_done() {
    let proxied = Proxied::start().await;
    for proxy in &proxied.proxies[1..] {
        proxy.add(DownAfter::new(PROMISES));
    }
    let error = proxied.replace(&mut proxied.operator()).await.unwrap_err().to_string();
    assert_eq!(proxied.accepted().await, 0);
    assert!(error.contains("the members can't be changed: 2 of the old"), "{error}");
    assert!(!error.contains("half done"), "{error}");
}

#[tokio::test]
async fn error_after_many_ballots_does_not_blame_other_operators_alone() {
    let proxied = Proxied::start().await;
    for proxy in &proxied.proxies[1..] {
        proxy.add(Loses(ACCEPTS));
    }
    let error = proxied.replace(&mut proxied.operator()).await.unwrap_err().to_string();
    assert_eq!(proxied.accepted().await, 1);
    assert!(error.contains("may be half done"), "{error}");
    assert!(error.contains("they restart or do not answer, or other operators"), "{error}");
}
