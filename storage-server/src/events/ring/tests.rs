use super::*;

fn decision(number: usize) -> Kept {
    Kept { event: number as u64, resource: "r".to_owned(), text: Bytes::new() }
}

fn ring(decisions: usize) -> Ring {
    let mut ring = Ring::default();
    ring.keep((0..decisions).map(decision).collect());
    ring
}

fn after(ring: &Ring, event: usize) -> Place {
    ring.place(Some(EventId { run: ring.run, event: event as u64 }))
}

/// The events that a client gets from a place on, until there is no other.
fn rest(ring: &Ring, place: Place) -> Vec<u64> {
    let kept = (place.next..).map_while(|number| ring.get(number).unwrap());
    kept.map(|kept| kept.event).collect()
}

#[test]
fn client_goes_on_after_the_event_that_it_has_seen_last() {
    let ring = ring(5);
    assert_eq!(rest(&ring, after(&ring, 2)), [3, 4]);
    assert!(rest(&ring, after(&ring, 4)).is_empty());
    assert!(rest(&ring, ring.place(None)).is_empty(), "from now on");
    let from_the_start = ring.place(Some(EventId { run: ring.run, event: ring.before }));
    assert_eq!((rest(&ring, from_the_start), from_the_start.missed), (vec![0, 1, 2, 3, 4], None));
}

#[test]
fn client_whose_last_event_is_unknown_is_told_why_and_gets_what_is_kept() {
    let full = ring(MAX_KEPT + 2);
    for (place, missed) in [
        (after(&full, 0), Some(Missed::TooOld)),
        // The control: the last one that was dropped is not missed.
        (after(&full, 1), None),
        (full.place(Some(EventId { run: full.run ^ 1, event: 3 })), Some(Missed::Restarted)),
    ] {
        assert_eq!(place.missed, missed);
        assert_eq!(rest(&full, place).first(), Some(&2));
        assert_eq!(rest(&full, place).len(), MAX_KEPT);
    }
}

#[test]
fn client_that_is_overtaken_is_told_so() {
    let mut ring = ring(MAX_KEPT);
    let place = after(&ring, 0);
    assert_eq!(ring.get(place.next).unwrap().unwrap().event, 1);
    ring.keep((MAX_KEPT..MAX_KEPT + 2).map(decision).collect());
    let oldest = ring.get(place.next).unwrap_err();
    assert_eq!((oldest.missed, oldest.last), (Some(Missed::Slow), 1));
    assert_eq!(rest(&ring, oldest).len(), MAX_KEPT);
}

/// Otherwise a client that comes back late would not learn that it has missed some.
#[test]
fn decisions_are_kept_for_a_while_after_the_last_client_and_then_forgotten() {
    let mut ring = ring(3);
    let (seen, now) = (after(&ring, 1), Instant::now());
    assert!(ring.note_watchers(1, now), "it watches");
    let soon = now + KEPT_FOR * 2;
    assert!(ring.note_watchers(0, soon), "it has left just now");
    assert!(ring.note_watchers(0, soon + KEPT_FOR / 2));
    assert_eq!((rest(&ring, seen), after(&ring, 1).missed), (vec![2], None));
    assert!(!ring.note_watchers(0, soon + KEPT_FOR));
    assert!(ring.kept.is_empty());
    for event in 0..3 {
        assert_eq!(after(&ring, event).missed, Some(Missed::TooOld), "{event}");
    }
    // The control: a client that comes back in time keeps them.
    assert!(ring.note_watchers(1, soon + KEPT_FOR));
    assert!(ring.note_watchers(0, soon + KEPT_FOR * 3));
}
