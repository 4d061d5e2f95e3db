//! What is known of endpoints as the process that takes over goes on with it.
//!
//! Knows how each state is told, and nothing of whom it is told to.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use serde_json::{Value, json};
use yumen_base::Now;
use yumen_plugin::PortableState;

use crate::balance::{EndpointStart, RoundRobinState};
use crate::endpoint::{EndpointHealth, EndpointState, HealthCounts};
use crate::protection::{EndpointCounts, UpstreamLimiter};

impl PortableState for EndpointHealth {
    fn tell(&self) -> Value {
        let counts = [&self.active, &self.passive].map(|counts| all(counts).map(|count| count.load(Relaxed)));
        match self.is_up() && counts.concat().iter().all(|count| *count == 0) {
            true => Value::Null,
            false => json!({"up": self.is_up(), "active": counts[0], "passive": counts[1]}),
        }
    }

    fn take_over(&self, told: &Value, _now: Now) {
        self.set(told["up"].as_bool().unwrap_or(true));
        for (name, counts) in [("active", &self.active), ("passive", &self.passive)] {
            for (count, told) in all(counts).into_iter().zip(numbers(&told[name])) {
                count.store(u32::try_from(told).unwrap_or(0), Relaxed);
            }
        }
    }
}

fn all(counts: &HealthCounts) -> [&AtomicU32; 4] {
    [&counts.successes, &counts.http_failures, &counts.tcp_failures, &counts.timeouts]
}

impl PortableState for EndpointState {
    fn tell(&self) -> Value {
        match self.ewma_at_us.load(Relaxed) {
            0 => Value::Null,
            at_us => json!([self.ewma_us.load(Relaxed), at_us]),
        }
    }

    fn take_over(&self, told: &Value, _now: Now) {
        let told: Vec<u64> = numbers(told).collect();
        if let [ewma_us, at_us] = told[..]
            && self.ewma_at_us.load(Relaxed) < at_us
        {
            self.ewma_us.store(ewma_us, Relaxed);
            self.ewma_at_us.store(at_us, Relaxed);
        }
    }
}

impl PortableState for RoundRobinState {
    fn tell(&self) -> Value {
        self.positions().collect::<Vec<u32>>().into()
    }

    fn take_over(&self, told: &Value, _now: Now) {
        let told: Vec<u32> = numbers(told).filter_map(|turn| turn.try_into().ok()).collect();
        self.go_on_from(&told);
    }
}

impl PortableState for EndpointStart {
    fn tell(&self) -> Value {
        match self.0.load(Relaxed) {
            0 => Value::Null,
            since_us => since_us.into(),
        }
    }

    fn take_over(&self, told: &Value, _now: Now) {
        self.0.store(told.as_u64().unwrap_or(0), Relaxed);
    }
}

/// With how many requests are under way, where there are any. Other versions tell the rest alone.
fn export_with_in_flight(under_way: &AtomicU32, rest: Value) -> Value {
    match under_way.load(Relaxed) {
        0 => rest,
        under_way => json!({UNDER_WAY: under_way, REST: rest}),
    }
}

/// How many requests are under way, and the rest if it is told.
fn split_in_flight(told: &Value) -> (u32, Option<&Value>) {
    match told.is_object() {
        true => {
            (told[UNDER_WAY].as_u64().and_then(|count| count.try_into().ok()).unwrap_or(0), told.get(REST))
        }
        false => (0, Some(told)),
    }
}

fn in_flight_since(before: &Value, now: &Value) -> Value {
    match (split_in_flight(before).0, split_in_flight(now).0) {
        (before, now) if before == now => Value::Null,
        (_, now) => json!({UNDER_WAY: now}),
    }
}

const UNDER_WAY: &str = "under_way";
const REST: &str = "rest";

impl PortableState for EndpointCounts {
    fn tell(&self) -> Value {
        export_with_in_flight(
            &self.requests,
            match self.ejection.told() {
                told if told.iter().all(|number| *number == 0) => Value::Null,
                told => told.to_vec().into(),
            },
        )
    }

    fn take_over(&self, told: &Value, _now: Now) {
        let (under_way, rest) = split_in_flight(told);
        self.set_predecessor_count(under_way);
        if let Some(Ok(told)) = rest.map(|rest| numbers(rest).collect::<Vec<u64>>().try_into()) {
            self.ejection.go_on_from(told);
        }
    }

    fn exports_while_draining(&self) -> bool {
        true
    }

    fn since(&self, before: &Value, now: &Value) -> Value {
        in_flight_since(before, now)
    }

    fn go_on_alone(&self) {
        self.set_predecessor_count(0);
    }
}

/// Connections are each process's own: those that idle in the old one would leave the new one none.
impl PortableState for UpstreamLimiter {
    fn tell(&self) -> Value {
        export_with_in_flight(
            &self.requests,
            match self.outliers.due_ms() {
                0 => Value::Null,
                due_ms => due_ms.into(),
            },
        )
    }

    fn take_over(&self, told: &Value, _now: Now) {
        let (under_way, rest) = split_in_flight(told);
        self.set_predecessor_count(under_way);
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
        self.set_predecessor_count(0);
    }
}

fn numbers(told: &Value) -> impl Iterator<Item = u64> {
    told.as_array().into_iter().flatten().filter_map(Value::as_u64)
}

#[cfg(test)]
mod tests;
