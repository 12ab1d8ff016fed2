//! `lock-client node status`.

use clap::Args;
use comfy_table::{Table, presets::NOTHING};
use lock_client::redlock::{
    majority,
    operator::{Cluster, Inspection, View},
};

use crate::{
    exit_code,
    failure::Failure,
    lock_service::LockService,
    stdout::{print, print_bytes},
};

pub(super) const HELP: &str = "\
Prints a table: a line for each member of the cluster, and for each node that --locks names and that \
is no member; then why a node does not vote, and what to do; then a line for the cluster. LAG is how long \
a node took to answer. All counters of all nodes are read for BEHIND, unless --no-counters is given.

Each node is asked to grant a lock that no name has. If the user must not ask for it, the node counts by \
its record alone. One that is replicated or evicting votes, but does not count: its vote must not be \
relied on. With --json, each node is an object on a line, and the cluster is the last.

The exit code is 0 if all members may vote, 81 if a majority may, but not all, or if most nodes in --locks \
are no members, so that a client finds no cluster; and 69 if no majority may.";

#[derive(Args, Debug)]
pub(crate) struct Status {
    /// Do not read the counters, which takes long if there are many names
    #[arg(long)]
    no_counters: bool,

    /// Print a line of JSON for each node and for the cluster
    #[arg(long)]
    json: bool,
}

impl Status {
    pub(crate) async fn run(self, lock_service: &LockService) -> Result<(), Failure> {
        let operator = lock_service.operator()?;
        let seen = if self.no_counters {
            operator.inspect().await
        } else {
            operator.inspect_with_counters().await?
        };
        if self.json {
            for node in &seen.nodes {
                print(node)?;
            }
            print(&seen.cluster)?;
        } else {
            print_bytes(text(&seen).as_bytes())?;
        }
        verdict(&seen.cluster)?;
        let named = |number| seen.nodes.iter().take(number).filter(|view| view.is_named).count();
        let (all, members) = (named(seen.nodes.len()), named(seen.cluster.nodes));
        let needed = majority(all);
        if members >= needed {
            return Ok(());
        }
        Err(degraded(format!(
            "{members} of the {all} nodes in --locks are members, and a client needs {needed}"
        )))
    }
}

/// The failure if not all nodes may vote.
pub(super) fn verdict(cluster: &Cluster) -> Result<(), Failure> {
    let Cluster { nodes, majority, voting, .. } = *cluster;
    if voting < majority {
        Err(Failure::unavailable("no majority of the nodes may vote"))
    } else if voting < nodes {
        let more = voting - majority;
        Err(degraded(format!("{voting} of {nodes} nodes may vote, and {more} more may fail")))
    } else {
        Ok(())
    }
}

fn degraded(reason: String) -> Failure {
    Failure::Message(exit_code::DEGRADED, format!("degraded: {reason}"))
}

/// The table, and the cluster in a sentence.
fn text(seen: &Inspection) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING);
    table.set_header(["NODE", "STATE", "BEHIND", "LAG"]);
    table.add_rows(seen.nodes.iter().map(row));
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let mut text: String = table.lines().map(|line| line.trim_end().to_owned() + "\n").collect();
    if seen.nodes.iter().any(|view| view.counters_behind > Some(0)) {
        text += "\nBEHIND: the number of names whose counter on the node is below the highest of all voting \
                 nodes. No\ntoken is lost: a lock that is held, or was acquired without the node, may be \
                 among them.\n";
    }
    let reasons = seen.nodes.iter().filter_map(|view| Some((&view.node, view.reason.as_ref()?)));
    for (node, reason) in reasons {
        text += &format!("\n{node}: {reason}\n");
    }
    for View { node, .. } in seen.nodes.iter().filter(|view| !view.is_named) {
        text += &format!("\n{node}: it is a member, and --locks does not name it\n");
    }
    let cluster = &seen.cluster;
    let name = cluster.cluster.as_deref().unwrap_or("none");
    let longest = cluster.max_ttl_ms.map_or_else(String::new, |ttl| {
        let ttl = humantime::format_duration(std::time::Duration::from_millis(ttl));
        format!("; the longest ttl is {ttl}")
    });
    let term = cluster.term.map_or_else(String::new, |term| format!(" in term {term}"));
    text + &format!(
        "\ncluster {name}{term}: {} of {} nodes may vote, locks need {}{longest}\n",
        cluster.voting, cluster.nodes, cluster.majority
    )
}

fn row(view: &View) -> [String; 4] {
    let unknown = || "-".to_owned();
    // The word that JSON has.
    let state = serde_json::to_value(view.state).unwrap_or_default();
    [
        view.node.clone(),
        state.as_str().unwrap_or_default().to_owned(),
        view.counters_behind.map_or_else(unknown, |names| names.to_string()),
        view.lag_ms.map_or_else(unknown, |lag| format!("{lag} ms")),
    ]
}
