use std::task::{Context, Waker};

use super::*;

const MIB: usize = 1024 * 1024;

struct World {
    backlog: Rc<BodyBacklog>,
    entries: Vec<Option<BacklogEntry>>,
}

impl World {
    fn new(bytes_max: usize) -> World {
        World { backlog: Rc::new(BodyBacklog::new(bytes_max)), entries: Vec::new() }
    }

    /// Adds an exchange that waits with `bytes`.
    fn begin(&mut self, bytes: usize, now_ms: u64) -> usize {
        self.entries.push(None);
        let at = self.entries.len() - 1;
        assert!(!self.note(at, bytes, 0, now_ms));
        at
    }

    fn note(&mut self, at: usize, bytes: usize, taken_bytes: u64, now_ms: u64) -> bool {
        let cx = Context::from_waker(Waker::noop());
        self.backlog.note(&mut self.entries[at], &cx, WaitingBytes { bytes, taken_bytes }, now_ms)
    }
}

#[test]
fn the_exchanges_that_stalled_longest_end_above_the_bound() {
    let mut world = World::new(2 * MIB);
    let exchanges: Vec<usize> = (0..6).map(|at| world.begin(MIB / 2, 1000 + at)).collect();
    assert_eq!(world.backlog.bytes(), 3 * MIB);
    assert_eq!(world.backlog.enforce(1000 + STALLED_MS - 1), 0, "none has stalled yet");
    assert_eq!(world.backlog.enforce(2000 + STALLED_MS), 2);
    assert_eq!(world.backlog.enforce(2001 + STALLED_MS), 0, "those that were told to end count as ended");
    let ended: Vec<bool> = exchanges.iter().map(|at| world.note(*at, MIB / 2, 0, 8000)).collect();
    assert_eq!(ended, [true, true, false, false, false, false]);
    world.entries.clear();
    assert_eq!(world.backlog.bytes(), 0);
}

#[test]
fn backlog_far_above_its_bound_is_enforced_at_once() {
    let mut world = World::new(MIB);
    let exchanges = [(); 4].map(|()| world.begin(MIB, 1000));
    assert_eq!((world.backlog.enforce(1400), world.backlog.enforce(1500)), (0, 3), "{exchanges:?}");
}

#[test]
fn a_peer_that_takes_what_waits_is_not_stalled_but_one_that_drips_is() {
    let mut world = World::new(MIB);
    let (read, dripping) = (world.begin(MIB, 0), world.begin(MIB, 0));
    for step in 1..=6 {
        world.note(read, MIB, step * MIB as u64, step * 1000);
        world.note(dripping, MIB, step, step * 1000);
    }
    assert_eq!(world.backlog.enforce(6000), 1);
    assert!(!world.note(read, MIB, 7 * MIB as u64, 6000) && world.note(dripping, MIB, 7, 6000));
}

#[test]
fn a_chosen_exchange_continues_if_its_peer_has_read_what_waited() {
    let mut world = World::new(1);
    let (read, deaf) = (world.begin(2 * MIB, 0), world.begin(MIB, 0));
    assert_eq!(world.backlog.enforce(STALLED_FAR_ABOVE_MS), 2);
    assert!(!world.note(read, 2 * MIB, 2 * MIB as u64, 600) && world.note(deaf, MIB, MIB as u64 - 1, 600));
    assert_eq!((world.backlog.take_ended(), world.backlog.take_ended()), (1, 0));
    world.entries[deaf] = None;
    assert_eq!(world.backlog.enforce(1000), 0, "the wait has begun anew");
    assert_eq!(world.backlog.enforce(1100), 1);
}

#[test]
fn an_exchange_whose_peer_reads_is_chosen_after_those_whose_peers_read_nothing() {
    let mut world = World::new(MIB);
    let (reading, dripping, deaf) = (world.begin(MIB, 0), world.begin(MIB, 100), world.begin(MIB, 200));
    let taken = [(reading, MIB as u64 * 9 / 10), (dripping, 1), (deaf, 0)];
    for (at, taken_bytes) in taken {
        assert!(!world.note(at, MIB, taken_bytes, 900));
    }
    assert_eq!(world.backlog.enforce(1000), 2);
    assert_eq!(taken.map(|(at, taken_bytes)| world.note(at, MIB, taken_bytes, 1000)), [false, true, true]);
}

#[test]
fn a_connection_whose_queue_does_not_drain_ends_after_the_exchanges() {
    let backlog = BodyBacklog::new(2 * MIB);
    let (stalled, read, cx) =
        (backlog.client_queue(), backlog.client_queue(), Context::from_waker(Waker::noop()));
    let _held = stalled.stream().queue(vec![0; 2 * MIB].into());
    let stream = read.stream();
    let mut queued = stream.queue(vec![0; MIB].into());
    assert_eq!(backlog.enforce(0), 0);
    drop(std::mem::replace(&mut queued, stream.queue(vec![0; MIB].into())));
    assert_eq!(backlog.enforce(STALLED_MS), 1);
    assert!(stalled.is_over(&cx) && !read.is_over(&cx));
}

#[test]
fn half_the_bound_is_left_to_peers_that_read() {
    let mut world = World::new(2 * MIB);
    assert_eq!(world.backlog.read_ahead(0), usize::MAX);
    world.begin(MIB + 1, 0);
    assert_eq!(world.backlog.read_ahead(0), READ_AHEAD_BYTES);
    assert_eq!(world.backlog.read_ahead(TRUSTED_BYTES), usize::MAX);
}

#[test]
fn a_backlog_that_was_large_asks_once_for_memory_to_be_given_back() {
    let mut world = World::new(0);
    world.begin(RELEASED_BYTES_MIN, 0);
    assert!(!world.backlog.has_shrunk());
    world.entries.clear();
    assert!(world.backlog.has_shrunk() && !world.backlog.has_shrunk());
}
