//! Elections of one to three processes against a Lease that is kept in a variable.

use bytes::Bytes;
use serde_json::{Value, json};
use yumen_base::Now;

use super::{LeaseMachine, LeaseStep};
use crate::error::ApiError;
use crate::lease::LeaseSettings;

/// The API server of one Lease: create, merge patch, version as precondition.
#[derive(Default)]
struct LeaseServer {
    lease: Option<Value>,
    version: u64,
    is_down: bool,
}

impl LeaseServer {
    fn perform(&mut self, machine: &mut LeaseMachine, now_ms: u64) -> &'static str {
        let now = Now { mono_us: now_ms * 1000, unix_ms: 1_795_268_412_000 + now_ms };
        match machine.next(now) {
            LeaseStep::Pause { .. } => "pause",
            LeaseStep::Read => {
                let result = self.read();
                machine.take_read(result, now);
                "read"
            }
            LeaseStep::Create { body } => {
                let result = self.create(&body);
                machine.take_write(result, now, now);
                "create"
            }
            LeaseStep::Patch { body } => {
                let result = self.patch(&body);
                machine.take_write(result, now, now);
                "patch"
            }
        }
    }

    fn read(&self) -> Result<Bytes, ApiError> {
        if self.is_down {
            return Err(ApiError::Unreachable(String::new()));
        }
        self.lease.as_ref().map(|lease| lease.to_string().into()).ok_or(ApiError::NotFound(String::new()))
    }

    fn create(&mut self, body: &str) -> Result<Bytes, ApiError> {
        if self.lease.is_some() {
            return Err(ApiError::Conflict(String::new()));
        }
        self.store(serde_json::from_str(body).unwrap())
    }

    fn patch(&mut self, body: &str) -> Result<Bytes, ApiError> {
        let patch: Value = serde_json::from_str(body).unwrap();
        let mut lease = self.lease.clone().ok_or(ApiError::NotFound(String::new()))?;
        if patch["metadata"]["resourceVersion"] != lease["metadata"]["resourceVersion"] {
            return Err(ApiError::Conflict(String::new()));
        }
        for (key, value) in patch["spec"].as_object().unwrap() {
            lease["spec"][key] = value.clone();
        }
        self.store(lease)
    }

    fn store(&mut self, mut lease: Value) -> Result<Bytes, ApiError> {
        if self.is_down {
            return Err(ApiError::Unreachable(String::new()));
        }
        self.version += 1;
        lease["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.lease = Some(lease);
        self.read()
    }

    fn spec(&self) -> &Value {
        &self.lease.as_ref().unwrap()["spec"]
    }
}

fn machine(identity: &str) -> LeaseMachine {
    let identity = identity.to_owned();
    LeaseMachine::new(LeaseSettings { namespace: "n".to_owned(), name: "l".to_owned(), identity })
}

fn is_held(machine: &LeaseMachine, now_ms: u64) -> bool {
    machine.held_until_ms().is_some_and(|until_ms| now_ms < until_ms)
}

/// Performs until the machine pauses.
fn settle(server: &mut LeaseServer, machine: &mut LeaseMachine, now_ms: u64) -> Vec<&'static str> {
    let mut steps = Vec::new();
    for _ in 0..10 {
        let step = server.perform(machine, now_ms);
        if step == "pause" {
            return steps;
        }
        steps.push(step);
    }
    panic!("no pause after {steps:?}");
}

#[test]
fn the_first_process_creates_the_lease_and_renews_it() {
    let (mut server, mut one) = (LeaseServer::default(), machine("one"));
    assert_eq!(settle(&mut server, &mut one, 0), ["read", "create"]);
    assert!(is_held(&one, 9_999) && !is_held(&one, 10_000));
    let expected = json!({
        "holderIdentity": "one", "leaseDurationSeconds": 15, "leaseTransitions": 0,
        "acquireTime": "2026-11-21T13:40:12.000000Z", "renewTime": "2026-11-21T13:40:12.000000Z",
    });
    assert_eq!(server.spec(), &expected);
    assert_eq!(settle(&mut server, &mut one, 1_999), [""; 0]);
    assert_eq!(settle(&mut server, &mut one, 2_250), ["patch"]);
    assert!(is_held(&one, 12_249));
    assert_eq!(server.spec()["renewTime"], "2026-11-21T13:40:14.250000Z");
    assert_eq!(server.spec()["acquireTime"], "2026-11-21T13:40:12.000000Z");
}

#[test]
fn a_dead_holder_is_followed_within_17_s() {
    let (mut server, mut one, mut two) = (LeaseServer::default(), machine("one"), machine("two"));
    settle(&mut server, &mut one, 0);
    settle(&mut server, &mut one, 2_000);
    for now_ms in (2_000..17_000).step_by(500) {
        settle(&mut server, &mut two, now_ms);
        assert!(!is_held(&two, now_ms), "{now_ms}");
    }
    let mut now_ms = 17_000;
    while !is_held(&two, now_ms) {
        settle(&mut server, &mut two, now_ms);
        now_ms += 500;
    }
    assert!(now_ms <= 19_500, "{now_ms}");
    assert_eq!(server.spec()["leaseTransitions"], 1);
    // The old holder returns and finds the new one.
    settle(&mut server, &mut one, now_ms);
    assert!(!is_held(&one, now_ms) && is_held(&two, now_ms));
}

#[test]
fn a_released_lease_is_taken_at_the_next_look() {
    let (mut server, mut one, mut two) = (LeaseServer::default(), machine("one"), machine("two"));
    settle(&mut server, &mut one, 0);
    settle(&mut server, &mut two, 0);
    let body = one.release(Now { mono_us: 0, unix_ms: 0 }).unwrap();
    server.patch(&body).unwrap();
    assert!(!is_held(&one, 0));
    assert_eq!(settle(&mut server, &mut two, 2_000), ["read", "patch"]);
    assert!(is_held(&two, 2_000));
    // There is nothing to release twice.
    assert_eq!(one.release(Now::default()), None);
}

#[test]
fn an_unreachable_api_server_ends_holding_after_10_s() {
    let (mut server, mut one) = (LeaseServer::default(), machine("one"));
    settle(&mut server, &mut one, 0);
    server.is_down = true;
    for now_ms in (2_000..10_000).step_by(2_000) {
        assert_eq!(settle(&mut server, &mut one, now_ms), ["patch"]);
        assert!(is_held(&one, now_ms));
    }
    settle(&mut server, &mut one, 10_000);
    assert_eq!(one.held_until_ms(), None);
    server.is_down = false;
    settle(&mut server, &mut one, 12_000);
    assert!(is_held(&one, 12_000));
}

#[test]
fn never_two_holders_with_random_outages() {
    for seed in 1..500_u64 {
        let mut server = LeaseServer::default();
        let mut machines = [machine("one"), machine("two"), machine("three")];
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut draw = |bound: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % bound
        };
        let mut held_once = 0;
        for now_ms in (0..240_000).step_by(100) {
            let one = &mut machines[draw(3) as usize];
            server.is_down = draw(10) < 3 || (now_ms / 20_000) % 3 == 1 && draw(10) < 9;
            server.perform(one, now_ms);
            let holders = machines.iter().filter(|one| is_held(one, now_ms)).count();
            assert!(holders <= 1, "seed {seed}: {holders} holders at {now_ms} ms");
            held_once += holders;
        }
        assert!(held_once > 500, "seed {seed}: {held_once}");
    }
}
