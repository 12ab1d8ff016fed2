//! The hash slots of a Redis Cluster that move to another node.

use std::collections::{BTreeMap, HashMap};

use ::redis::RedisResult;

use super::{
    server::{ErrorReply, Server, ask},
    unseen,
};
use crate::check::{Check, Cure, Verdict};

const NAME: &str = "slots";
/// How many slots are named.
const NAMED: usize = 5;

/// A node as `CLUSTER NODES` shows it: its id, and its address.
type Nodes = HashMap<String, String>;

/// A slot that is open: the ids of the node that has it, and of the node that gets it. Each of the two
/// knows by itself that it is open.
#[derive(Debug, Default, PartialEq, Eq)]
struct Open {
    from: String,
    to: String,
    is_migrating: bool,
    is_importing: bool,
}

/// Asks all primaries which slots are open, because each shows its own only.
///
/// # Errors
/// If the connection is lost.
pub(super) async fn check(server: &mut Server) -> RedisResult<Check> {
    let shown = match nodes_shown_by(&mut server.commands).await? {
        Ok(shown) => shown,
        Err(rejection) => {
            return Ok(unseen(NAME, Some(&rejection)).lowered("a slot may be open"));
        }
    };
    let nodes = addresses(&shown);
    let (mut open, mut silent) = (BTreeMap::new(), Vec::new());
    add_open(&shown, &mut open);
    for (id, address) in primaries(&shown) {
        let connected = server.another_at(&address).await;
        let shown = match connected {
            Ok(mut connection) => nodes_shown_by(&mut connection).await,
            Err(error) => Err(error),
        };
        match shown {
            Ok(Ok(shown)) => add_open(&shown, &mut open),
            Ok(Err(_)) | Err(_) => silent.push(nodes.get(&id).cloned().unwrap_or(id)),
        }
    }
    Ok(judge(&open, &nodes, &silent))
}

async fn nodes_shown_by(
    connection: &mut impl ::redis::aio::ConnectionLike,
) -> RedisResult<Result<String, ErrorReply>> {
    ask(connection, &::redis::cmd("CLUSTER").arg("NODES").to_owned()).await
}

/// `ID HOST:PORT@BUS[,NAME] FLAGS PRIMARY PING PONG EPOCH LINK SLOT…`
fn fields(line: &str) -> Option<(&str, &str, &str, Vec<&str>)> {
    let mut words = line.split(' ');
    let (id, address, flags) = (words.next()?, words.next()?, words.next()?);
    Some((id, address.split('@').next()?, flags, words.skip(5).collect()))
}

fn addresses(shown: &str) -> Nodes {
    let nodes = shown.lines().filter_map(fields);
    nodes.map(|(id, address, ..)| (id.to_owned(), address.to_owned())).collect()
}

/// The other primaries, as far as they were not given up.
fn primaries(shown: &str) -> Vec<(String, String)> {
    let nodes = shown.lines().filter_map(fields).filter(|(_, _, flags, _)| {
        let has = |flag| flags.split(',').any(|other| other == flag);
        has("master") && !["myself", "fail", "noaddr", "handshake"].into_iter().any(has)
    });
    nodes.map(|(id, address, ..)| (id.to_owned(), address.to_owned())).collect()
}

/// Adds the slots that a node shows as open: `[SLOT->-ID]` moves away, and `[SLOT-<-ID]` arrives.
fn add_open(shown: &str, open: &mut BTreeMap<u16, Open>) {
    let lines = shown.lines().filter_map(fields);
    for (id, _, _, slots) in lines.filter(|(_, _, flags, _)| flags.contains("myself")) {
        for slot in slots {
            let Some(slot) = slot.strip_prefix('[').and_then(|slot| slot.strip_suffix(']')) else {
                continue;
            };
            let (number, from, to, is_migrating) = match slot.split_once("->-") {
                Some((number, to)) => (number, id, to, true),
                None => match slot.split_once("-<-") {
                    Some((number, from)) => (number, from, id, false),
                    None => continue,
                },
            };
            let Ok(number) = number.parse() else { continue };
            let slot: &mut Open = open.entry(number).or_default();
            (slot.from, slot.to) = (from.to_owned(), to.to_owned());
            slot.is_migrating |= is_migrating;
            slot.is_importing |= !is_migrating;
        }
    }
}

fn judge(open: &BTreeMap<u16, Open>, nodes: &Nodes, silent: &[String]) -> Check {
    let named = |id: &String| nodes.get(id).unwrap_or(id).clone();
    let described = open.iter().take(NAMED).map(|(number, slot)| {
        let (from, to) = (named(&slot.from), named(&slot.to));
        if slot.is_migrating && slot.is_importing {
            format!("slot {number} moves from {from} to {to}")
        } else {
            format!("the move of slot {number}, from {from} to {to}, was broken off")
        }
    });
    let mut found: Vec<_> = described.collect();
    if open.len() > NAMED {
        found.push(format!("{} more are open", open.len() - NAMED));
    }
    if !silent.is_empty() {
        found.push(format!("these nodes did not show their slots: {}", silent.join(", ")));
    }
    if open.is_empty() {
        found.insert(0, "no slot moves".to_owned());
    }
    let node = open.values().next().map(|slot| named(&slot.from)).unwrap_or_default();
    Check::ok(NAME, found.join("; "))
        .unless(
            open.is_empty(),
            Verdict::Warning,
            "until the move has ended, scripts are answered by TRYAGAIN: the locks of the slot are not acquired, renewed \
             or released",
            Cure::new(
                "if nothing moves slots now, end what was broken off",
                [format!("redis-cli --cluster fix {node}")],
            ),
        )
        .unless(
            silent.is_empty(),
            Verdict::Warning,
            "one of their slots may be open",
            "run this again when they answer, as a user who may use CLUSTER NODES",
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_slots_are_read_from_both_ends() {
        let one = "a 10.0.0.1:6379@16379 myself,master - 0 0 1 connected 0-5460 [42->-b] [43->-b]\n\
                   b 10.0.0.2:6379@16379,host master - 0 0 2 connected 5461-16383\n\
                   c 10.0.0.3:6379@16379 master,fail - 0 0 3 disconnected\n";
        let other = "b 10.0.0.2:6379@16379 myself,master - 0 0 2 connected 5461 [42-<-a]\n";
        assert_eq!(primaries(one), [("b".to_owned(), "10.0.0.2:6379".to_owned())]);
        let mut open = BTreeMap::new();
        add_open(one, &mut open);
        add_open(other, &mut open);
        let check = judge(&open, &addresses(one), &[]);
        assert_eq!(check.verdict, Verdict::Warning);
        assert_eq!(
            check.found,
            "slot 42 moves from 10.0.0.1:6379 to 10.0.0.2:6379; the move of slot 43, from 10.0.0.1:6379 to \
             10.0.0.2:6379, was broken off"
        );
        let none = judge(&BTreeMap::new(), &Nodes::new(), &[]);
        assert_eq!((none.verdict, none.found.as_str()), (Verdict::Ok, "no slot moves"));
    }
}
