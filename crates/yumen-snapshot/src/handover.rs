//! Handover of the state of endpoints and upstreams, as JSON values.
//!
//! Defines the form of each state, independent of the transport.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use serde_json::{Value, json};
use yumen_base::Now;
use yumen_plugin::PortableState;

use crate::balance::{EndpointStart, RoundRobinState};
use crate::endpoint::{EndpointHealth, EndpointState, HealthCounts};
use crate::protection::{EndpointCounts, UpstreamLimiter};

impl PortableState for EndpointHealth {
    fn export(&self) -> Value {
        let counts = [&self.active, &self.passive].map(|counts| all(counts).map(|count| count.load(Relaxed)));
        // An untouched state is not exported: it is the initial state of the successor too.
        match self.is_up() && counts.concat().iter().all(|count| *count == 0) {
            true => Value::Null,
            false => json!({"up": self.is_up(), "active": counts[0], "passive": counts[1]}),
        }
    }

    fn take_over(&self, exported: &Value, _now: Now) {
        // An endpoint counts as up unless the export states otherwise.
        self.set(exported["up"].as_bool().unwrap_or(true));
        for (name, counts) in [("active", &self.active), ("passive", &self.passive)] {
            for (count, exported) in all(counts).into_iter().zip(numbers(&exported[name])) {
                count.store(u32::try_from(exported).unwrap_or(0), Relaxed);
            }
        }
    }
}

fn all(counts: &HealthCounts) -> [&AtomicU32; 4] {
    [&counts.successes, &counts.http_failures, &counts.tcp_failures, &counts.timeouts]
}

impl PortableState for EndpointState {
    fn export(&self) -> Value {
        match self.ewma_at_us.load(Relaxed) {
            // Without a measurement there is nothing to export.
            0 => Value::Null,
            at_us => json!([self.ewma_us.load(Relaxed), at_us]),
        }
    }

    fn take_over(&self, exported: &Value, _now: Now) {
        let exported: Vec<u64> = numbers(exported).collect();
        // A newer local measurement takes precedence.
        if let [ewma_us, at_us] = exported[..]
            && self.ewma_at_us.load(Relaxed) < at_us
        {
            self.ewma_us.store(ewma_us, Relaxed);
            self.ewma_at_us.store(at_us, Relaxed);
        }
    }
}

impl PortableState for RoundRobinState {
    fn export(&self) -> Value {
        self.positions().collect::<Vec<u32>>().into()
    }

    fn take_over(&self, exported: &Value, _now: Now) {
        let exported: Vec<u32> = numbers(exported).filter_map(|turn| turn.try_into().ok()).collect();
        self.go_on_from(&exported);
    }
}

impl PortableState for EndpointStart {
    fn export(&self) -> Value {
        match self.0.load(Relaxed) {
            // Out of use is also the initial state of the successor.
            0 => Value::Null,
            since_us => since_us.into(),
        }
    }

    fn take_over(&self, exported: &Value, _now: Now) {
        self.0.store(exported.as_u64().unwrap_or(0), Relaxed);
    }
}

/// Adds the number of requests in flight, if there are any. Other versions export the rest alone.
fn export_with_in_flight(under_way: &AtomicU32, rest: Value) -> Value {
    match under_way.load(Relaxed) {
        // Without requests in flight the form stays that of versions that count none.
        0 => rest,
        under_way => json!({UNDER_WAY: under_way, REST: rest}),
    }
}

/// Splits the number of requests in flight from the rest, if that is exported.
fn split_in_flight(exported: &Value) -> (u32, Option<&Value>) {
    match exported.is_object() {
        true => (
            exported[UNDER_WAY].as_u64().and_then(|count| count.try_into().ok()).unwrap_or(0),
            exported.get(REST),
        ),
        false => (0, Some(exported)),
    }
}

fn in_flight_since(before: &Value, now: &Value) -> Value {
    match (split_in_flight(before).0, split_in_flight(now).0) {
        // Unchanged counts are not sent: a draining predecessor reports every 100 ms (decision 32).
        (before, now) if before == now => Value::Null,
        (_, now) => json!({UNDER_WAY: now}),
    }
}

const UNDER_WAY: &str = "under_way";
const REST: &str = "rest";

impl PortableState for EndpointCounts {
    fn export(&self) -> Value {
        export_with_in_flight(
            &self.requests,
            match self.ejection.export() {
                exported if exported.iter().all(|number| *number == 0) => Value::Null,
                exported => exported.to_vec().into(),
            },
        )
    }

    fn take_over(&self, exported: &Value, _now: Now) {
        let (under_way, rest) = split_in_flight(exported);
        // Added to the own count, so that both processes together stay within the bound.
        self.set_predecessor_count(under_way);
        // An array of another length comes from another version.
        if let Some(Ok(exported)) = rest.map(|rest| numbers(rest).collect::<Vec<u64>>().try_into()) {
            self.ejection.go_on_from(exported);
        }
    }

    fn exports_while_draining(&self) -> bool {
        // Requests in flight drain for as long as connections last, so one export at the handover would go stale.
        true
    }

    fn since(&self, before: &Value, now: &Value) -> Value {
        in_flight_since(before, now)
    }

    fn go_on_alone(&self) {
        // The predecessor has ended, and its requests with it.
        self.set_predecessor_count(0);
    }
}

/// Connections belong to each process: with those that idle in the predecessor the successor could open none.
impl PortableState for UpstreamLimiter {
    fn export(&self) -> Value {
        export_with_in_flight(
            &self.requests,
            match self.outliers.due_ms() {
                0 => Value::Null,
                due_ms => due_ms.into(),
            },
        )
    }

    fn take_over(&self, exported: &Value, _now: Now) {
        let (under_way, rest) = split_in_flight(exported);
        self.set_predecessor_count(under_way);
        // Reports of a draining predecessor have no such part: the ejections are the successor's by then.
        if let Some(rest) = rest {
            self.outliers.evaluate_at(rest.as_u64().unwrap_or(0));
        }
    }

    fn exports_while_draining(&self) -> bool {
        true
    }

    fn since(&self, before: &Value, now: &Value) -> Value {
        in_flight_since(before, now)
    }

    fn go_on_alone(&self) {
        // As for endpoints.
        self.set_predecessor_count(0);
    }
}

fn numbers(exported: &Value) -> impl Iterator<Item = u64> {
    exported.as_array().into_iter().flatten().filter_map(Value::as_u64)
}

#[cfg(test)]
mod tests;
