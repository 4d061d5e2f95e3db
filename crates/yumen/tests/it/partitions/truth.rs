//! The content of the store at every revision, from the history of etcd, as the reference for served values.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::Value;

use crate::harness::etcd::Etcd;

/// All values of all routes.
pub(super) struct Truth {
    /// First revision, and revision of the successor, by route and value.
    in_force: HashMap<(usize, u64), (u64, u64)>,
}

impl Truth {
    /// Reads the history of etcd from the beginning.
    pub(super) fn of(etcd: &Etcd) -> Truth {
        // This key marks the end of the history.
        const END: &str = "/apisix/routes/the-end";
        etcd.ctl(&["put", END, "{}"]).expect("a key is put");
        let mut watch =
            etcd.ctl_command(&["watch", "--prefix", "/apisix/routes/", "--rev", "1", "-w", "json"]);
        let mut watch = watch.stdout(Stdio::piped()).spawn().expect("etcdctl is installed");
        let mut events = Vec::new();
        'history: for line in BufReader::new(watch.stdout.take().unwrap()).lines().map_while(Result::ok) {
            let change: Value = serde_json::from_str(&line).unwrap();
            for event in change["Events"].as_array().into_iter().flatten() {
                let text = |member: &str| {
                    let bytes = BASE64.decode(event["kv"][member].as_str().unwrap_or_default()).unwrap();
                    String::from_utf8(bytes).unwrap()
                };
                if text("key") == END {
                    break 'history;
                }
                let revision = event["kv"]["mod_revision"].as_u64().unwrap();
                if let Some(route) = text("key").strip_prefix("/apisix/routes/k") {
                    let value: Value = serde_json::from_str(&text("value")).unwrap();
                    let id = value["desc"].as_str().unwrap().parse().unwrap();
                    events.push((revision, route.parse().unwrap(), id));
                }
            }
        }
        let _ = watch.kill();
        let _ = watch.wait();
        Truth::from(&events).unwrap()
    }

    /// Builds the reference from revision, route and value of each event.
    fn from(events: &[(u64, usize, u64)]) -> Result<Truth, String> {
        let (mut in_force, mut newest) = (HashMap::new(), HashMap::<usize, u64>::new());
        for &(revision, route, id) in events {
            if let Some(before) = newest.insert(route, id) {
                let known: &mut (u64, u64) = in_force.get_mut(&(route, before)).expect("it was the newest");
                known.1 = revision;
            }
            if in_force.insert((route, id), (revision, u64::MAX)).is_some() {
                return Err(format!("{id} was written twice"));
            }
        }
        Ok(Truth { in_force })
    }

    /// Whether a value was ever in the store.
    pub(super) fn has(&self, id: u64) -> bool {
        self.in_force.keys().any(|(_, known)| *known == id)
    }

    /// Whether the sequence of served values is consistent with non-decreasing revisions.
    pub(super) fn check(&self, served: &[(usize, u64)]) -> Result<(), String> {
        let mut at = 0;
        for (route, id) in served {
            let (from, until) =
                *self.in_force.get(&(*route, *id)).ok_or(format!("route {route} never was {id}"))?;
            at = at.max(from);
            if at >= until {
                return Err(format!(
                    "route {route} was {id}, from revision {from} up to {until}, when {at} had been served"
                ));
            }
        }
        Ok(())
    }
}

#[test]
fn values_of_no_revision_are_detected() {
    // Route 1 is 10, then 11, then 12; route 2 is 20, then 21.
    let truth = Truth::from(&[(3, 1, 10), (4, 2, 20), (6, 1, 11), (7, 2, 21), (9, 1, 12)]).unwrap();
    for (served, expected) in [
        (&[(1, 10), (2, 20), (1, 11), (2, 20), (2, 21), (1, 12)][..], Ok(())),
        (&[(1, 10), (2, 21)], Ok(())),
        (&[(1, 11), (1, 10)], Err("route 1 was 10, from revision 3 up to 6, when 6 had")),
        // Each value existed, but never both at the same revision.
        (&[(2, 21), (1, 10)], Err("route 1 was 10, from revision 3 up to 6, when 7 had")),
        (&[(1, 12), (2, 20)], Err("route 2 was 20, from revision 4 up to 7, when 9 had")),
        (&[(1, 13)], Err("route 1 never was 13")),
    ] {
        match (truth.check(served), expected) {
            (Ok(()), Ok(())) => {}
            (Err(found), Err(expected)) => assert!(found.contains(expected), "{found} for {expected}"),
            (found, expected) => panic!("{found:?} for {expected:?}"),
        }
    }
    assert!(truth.has(21) && !truth.has(13));
    assert!(Truth::from(&[(3, 1, 10), (4, 2, 20), (5, 1, 10)]).is_err());
}
