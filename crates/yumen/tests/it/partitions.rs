//! Three gateways, three etcd members and a Redis in separate network namespaces: correctness during
//! partitions in both directions or one.
//!
//! Namespaces require root; without them, the test prints that and is skipped.

mod limits;
mod truth;
mod world;

use truth::Truth;
use world::{Fault, Spot, World};

/// A fault for a while.
struct Case {
    what: &'static str,
    faults: &'static [Fault],
    /// Nodes without a connection to the store meanwhile.
    blind: &'static [usize],
    /// Nodes without a connection to Redis meanwhile.
    uncounted: &'static [usize],
}

const NOBODY: &[usize] = &[];

const CASES: &[Case] = &[
    Case { what: "nothing", faults: &[], blind: NOBODY, uncounted: NOBODY },
    Case {
        what: "a node is cut off from etcd",
        faults: &[Fault::Cut(Spot::Node(0), Spot::Members)],
        blind: &[0],
        uncounted: NOBODY,
    },
    Case {
        what: "the members hear a node, and it does not hear them",
        faults: &[Fault::Lost(Spot::Members, Spot::Node(1))],
        blind: &[1],
        uncounted: NOBODY,
    },
    Case {
        what: "a node hears the members, and they do not hear it",
        faults: &[Fault::Lost(Spot::Node(2), Spot::Members)],
        blind: &[2],
        uncounted: NOBODY,
    },
    Case {
        what: "a member is cut off",
        faults: &[Fault::Cable(Spot::Follower)],
        blind: NOBODY,
        uncounted: NOBODY,
    },
    Case {
        what: "the leader is cut off",
        faults: &[Fault::Cable(Spot::Leader)],
        blind: NOBODY,
        uncounted: NOBODY,
    },
    Case {
        what: "the leader is cut off from its fellows, and nodes still reach it",
        faults: &[Fault::Cut(Spot::Leader, Spot::Followers)],
        blind: NOBODY,
        uncounted: NOBODY,
    },
    Case {
        what: "nobody hears the leader, and it hears everybody",
        faults: &[Fault::Lost(Spot::Leader, Spot::Followers), Fault::Lost(Spot::Leader, Spot::Nodes)],
        blind: NOBODY,
        uncounted: NOBODY,
    },
    Case {
        what: "all but one member are cut off",
        faults: &[Fault::Cable(Spot::Followers)],
        blind: &[0, 1, 2],
        uncounted: NOBODY,
    },
    Case {
        what: "every cable of a member loses packets",
        faults: &[Fault::Flapping(Spot::Members)],
        blind: NOBODY,
        uncounted: NOBODY,
    },
    Case {
        what: "Redis is cut off",
        faults: &[Fault::Cable(Spot::Redis)],
        blind: NOBODY,
        uncounted: &[0, 1, 2],
    },
    Case {
        what: "a node does not hear Redis, which hears it",
        faults: &[Fault::Lost(Spot::Redis, Spot::Node(1))],
        blind: NOBODY,
        uncounted: &[1],
    },
    Case {
        what: "a node is cut off from etcd and from Redis",
        faults: &[Fault::Cut(Spot::Node(2), Spot::Members), Fault::Cut(Spot::Node(2), Spot::Redis)],
        blind: &[2],
        uncounted: &[2],
    },
];

#[test]
fn nodes_that_lose_sight_of_one_another_serve_on_and_end_in_one_state() {
    let Some(world) = World::start() else { return };
    world.under_traffic(|| {
        for case in CASES {
            check(&world, case);
        }
    });
    let traffic = world.traffic.into_inner().unwrap();
    assert_eq!(traffic.failures, Vec::<String>::new());
    let truth = Truth::of(&world.etcd);
    for id in &traffic.acknowledged {
        assert!(truth.has(*id), "{id} was acknowledged, and is lost");
    }
    for (node, served) in traffic.served.iter().enumerate() {
        assert!(served.len() > 100 * CASES.len(), "node {node} was asked too little: {}", served.len());
        truth.check(served).unwrap_or_else(|wrong| panic!("node {node}: {wrong}"));
    }
}

fn check(world: &World, case: &Case) {
    let repairs = world.break_by(case.faults);
    let what = case.what;
    world.wait(what, "only nodes without a view of the store report it", || world.reports_drift(case.blind));
    // Without a majority no write succeeds.
    let sighted: Vec<usize> = (0..world::NODES).filter(|node| !case.blind.contains(node)).collect();
    world.wait_for_writes(what, &sighted);
    world.wait(what, "those who see know who is behind", || world.names_drifting(case.blind));
    world.wait_for_reads(what);
    world.check_limits(what, case.uncounted);
    world.check_blind(what, case.blind);
    repairs();
    world.wait(what, "all follow again", || world.reports_drift(NOBODY));
    let pause = world.pause_writes();
    world.wait(what, "no node is behind", || world.all_applied());
    world.wait(what, "every node serves what is in the store", || world.is_in_step());
    drop(pause);
    world.check_counts(what);
}
