//! What each event of a record means for the picture. No other module of the picture knows events.

mod client;
mod service;
mod storage;

use std::ops::Range;

use super::{
    draft::Draft,
    story::{Kind, Story, Track},
    verdict,
};
use crate::record::{Actor, Checks, Event, EventKind, Outcome, World};

/// The story of one world, with at most this many moments. If more happened, the middle is left
/// out.
pub(super) fn story<'a>(
    world: &World,
    outcome: &Outcome,
    tracks: &[Actor],
    events: impl Iterator<Item = &'a Event>,
    most_moments: usize,
) -> Story {
    let events: Vec<_> = events.collect();
    let setting = events.iter().take_while(|event| is_setting(event)).count();
    let started_ms = events.get(setting).or(events.last()).map_or(0, |event| event.at_ms);
    let mut draft = Draft::new(Story {
        world: world.name,
        title: world.title,
        verdict: verdict::verdict(world, outcome),
        facts: outcome.to_string(),
        moments: vec![started_ms],
        tracks: sorted_tracks(world, tracks),
        arrows: Vec::new(),
    });
    let (setting, events) = events.split_at(setting);
    setting.iter().for_each(|event| add(&mut draft, event));
    let left_out = left_out(events, most_moments);
    for (number, event) in events.iter().enumerate() {
        if number == left_out.start && !left_out.is_empty() {
            draft.next_moment(event.at_ms);
            draft.leave_out(left_out.len());
        } else if number == left_out.end {
            draft.draw_again();
        }
        if !left_out.contains(&number) && event.actor != Actor::Storage {
            draft.next_moment(event.at_ms);
        }
        add(&mut draft, event);
    }
    draft.finish()
}

/// Adds what an event means.
fn add(draft: &mut Draft, event: &Event) {
    match event.actor {
        Actor::Client1 | Actor::Client2 | Actor::Client3 | Actor::Client4 => {
            client::lock_event(draft, event);
            client::work_event(draft, event);
        }
        Actor::Others => client::crowd_event(draft, event),
        Actor::Storage => storage::storage_event(draft, event),
        Actor::Nodes => service::nodes_event(draft, event),
        _ => service::service_event(draft, event),
    }
}

/// The events in the middle for which there are too few moments.
fn left_out(events: &[&Event], most_moments: usize) -> Range<usize> {
    let is_request = |(_, event): &(usize, &&Event)| event.actor != Actor::Storage;
    let requests = events.iter().enumerate().filter(is_request);
    let requests: Vec<usize> = requests.map(|(number, _)| number).collect();
    if requests.len() <= most_moments {
        return 0..0;
    }
    requests[most_moments / 2]..requests[requests.len() - most_moments / 2]
}

/// Whether it only says how the world was set up.
fn is_setting(event: &Event) -> bool {
    use EventKind::{CounterFromTheClock, CounterPreset, Stock};
    matches!(event.kind, CounterPreset | CounterFromTheClock | Stock { .. })
}

/// The lock service is on top and the storage at the bottom, so that all arrows point down.
fn sorted_tracks(world: &World, actors: &[Actor]) -> Vec<Track> {
    let track = |actor: &Actor| {
        let kind = match actor {
            Actor::Client1 | Actor::Client2 | Actor::Client3 | Actor::Client4 | Actor::Others => {
                Kind::Client
            }
            Actor::Network => Kind::Network,
            Actor::Storage => Kind::Storage,
            _ => Kind::LockService,
        };
        let checks = kind == Kind::Storage && world.checks == Checks::Tokens;
        Track {
            actor: *actor,
            kind,
            bars: Vec::new(),
            values: Vec::new(),
            fence: checks.then(Vec::new),
            flags: Vec::new(),
            killed: None,
        }
    };
    let mut tracks: Vec<_> = actors.iter().map(track).collect();
    tracks.sort_by_key(|track| track.kind);
    tracks
}
