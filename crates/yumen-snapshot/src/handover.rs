//! What is known of endpoints as the process that takes over goes on with it.
//!
//! Knows how each state is told, and nothing of whom it is told to.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use serde_json::{Value, json};
use yumen_base::Now;
use yumen_plugin::Portable;

use crate::balance::{Since, UpstreamState};
use crate::protection::{Gate, Tally};
use crate::upstream::{Counts, EndpointState, Health};

impl Portable for Health {
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

fn all(counts: &Counts) -> [&AtomicU32; 4] {
    [&counts.successes, &counts.http_failures, &counts.tcp_failures, &counts.timeouts]
}

impl Portable for EndpointState {
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

impl Portable for UpstreamState {
    fn tell(&self) -> Value {
        self.turns_taken().collect::<Vec<u32>>().into()
    }

    fn take_over(&self, told: &Value, _now: Now) {
        let told: Vec<u32> = numbers(told).filter_map(|turn| turn.try_into().ok()).collect();
        self.go_on_from(&told);
    }
}

impl Portable for Since {
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
fn tell_with(under_way: &AtomicU32, rest: Value) -> Value {
    match under_way.load(Relaxed) {
        0 => rest,
        under_way => json!({UNDER_WAY: under_way, REST: rest}),
    }
}

/// How many requests are under way, and the rest if it is told.
fn told_with(told: &Value) -> (u32, Option<&Value>) {
    match told.is_object() {
        true => {
            (told[UNDER_WAY].as_u64().and_then(|count| count.try_into().ok()).unwrap_or(0), told.get(REST))
        }
        false => (0, Some(told)),
    }
}

fn under_way_since(before: &Value, now: &Value) -> Value {
    match (told_with(before).0, told_with(now).0) {
        (before, now) if before == now => Value::Null,
        (_, now) => json!({UNDER_WAY: now}),
    }
}

const UNDER_WAY: &str = "under_way";
const REST: &str = "rest";

impl Portable for Tally {
    fn tell(&self) -> Value {
        tell_with(
            &self.requests,
            match self.ejection.told() {
                told if told.iter().all(|number| *number == 0) => Value::Null,
                told => told.to_vec().into(),
            },
        )
    }

    fn take_over(&self, told: &Value, _now: Now) {
        let (under_way, rest) = told_with(told);
        self.set_elsewhere(under_way);
        if let Some(Ok(told)) = rest.map(|rest| numbers(rest).collect::<Vec<u64>>().try_into()) {
            self.ejection.go_on_from(told);
        }
    }

    fn settles(&self) -> bool {
        true
    }

    fn since(&self, before: &Value, now: &Value) -> Value {
        under_way_since(before, now)
    }

    fn go_on_alone(&self) {
        self.set_elsewhere(0);
    }
}

/// Connections are each process's own: those that idle in the old one would leave the new one none.
impl Portable for Gate {
    fn tell(&self) -> Value {
        tell_with(
            &self.requests,
            match self.outliers.due_ms() {
                0 => Value::Null,
                due_ms => due_ms.into(),
            },
        )
    }

    fn take_over(&self, told: &Value, _now: Now) {
        let (under_way, rest) = told_with(told);
        self.set_elsewhere(under_way);
        if let Some(rest) = rest {
            self.outliers.look_at(rest.as_u64().unwrap_or(0));
        }
    }

    fn settles(&self) -> bool {
        true
    }

    fn since(&self, before: &Value, now: &Value) -> Value {
        under_way_since(before, now)
    }

    fn go_on_alone(&self) {
        self.set_elsewhere(0);
    }
}

fn numbers(told: &Value) -> impl Iterator<Item = u64> {
    told.as_array().into_iter().flatten().filter_map(Value::as_u64)
}

#[cfg(test)]
mod tests;
