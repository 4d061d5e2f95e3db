//! The exported state of the listeners of the configuration.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use tokio::sync::watch;
use yumen_base::metric::{MetricFamily, MetricKind, MetricSeries, MetricSource, MetricValue};
use yumen_snapshot::Snapshot;

/// State of a listener of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ListenerState {
    /// Not every worker accepts yet.
    Opening,
    /// Every worker accepts.
    Open { bound: SocketAddr },
    /// The listener is not open, for a reason that may end. `retry_at_ms` is in milliseconds since the Unix epoch;
    /// `None` until the configuration changes.
    Failed { reason: String, retry_at_ms: Option<u64> },
}

/// States by id.
pub(crate) type ListenerStates = Arc<BTreeMap<Arc<str>, ListenerState>>;

/// View of the listeners of the configuration, for operators.
#[derive(Clone)]
pub(crate) struct ListenerReport {
    states: watch::Receiver<ListenerStates>,
    /// Whether the listeners of the first snapshot have been opened.
    are_first_open: Arc<AtomicBool>,
}

impl ListenerReport {
    pub(super) fn new(states: watch::Receiver<ListenerStates>) -> ListenerReport {
        ListenerReport { states, are_first_open: Arc::default() }
    }

    /// Whether the listeners of the first snapshot are open, or have failed. `newest` is the newest snapshot.
    pub(crate) fn are_first_open(&self, newest: &Snapshot) -> bool {
        if self.are_first_open.load(Ordering::Acquire) {
            return true;
        }
        let states = self.states.borrow();
        let is_decided = |id: &Arc<str>| states.get(id).is_some_and(|state| *state != ListenerState::Opening);
        let are_open = newest.listeners().all(|listener| is_decided(&listener.id));
        self.are_first_open.fetch_or(are_open, Ordering::AcqRel);
        are_open
    }

    /// The states as a document, by id.
    pub(crate) fn document(&self) -> Value {
        let states = self.states.borrow().clone();
        let of = |state: &ListenerState| match state {
            ListenerState::Opening => json!({ "state": "opening" }),
            ListenerState::Open { bound } => json!({ "state": "open", "address": bound }),
            ListenerState::Failed { reason, retry_at_ms } => {
                json!({ "state": "failed", "reason": reason, "retry_at_ms": retry_at_ms })
            }
        };
        Value::Object(states.iter().map(|(id, state)| (id.to_string(), of(state))).collect())
    }
}

impl MetricSource for ListenerReport {
    fn gather(&self, out: &mut Vec<MetricFamily>) {
        let states = self.states.borrow().clone();
        out.push(family(states.values()));
    }
}

/// Describes the metric family without listeners, for the reference.
pub(crate) fn describe(out: &mut Vec<MetricFamily>) {
    out.push(family(std::iter::empty()));
}

fn family<'s>(states: impl Iterator<Item = &'s ListenerState> + Clone) -> MetricFamily {
    let series = |name: &str, is: fn(&ListenerState) -> bool| MetricSeries {
        labels: vec![("state", name.to_owned())],
        value: MetricValue::Number(states.clone().filter(|state| is(state)).count() as f64),
    };
    MetricFamily {
        name: "yumen_listeners".into(),
        help: "Listeners of the configuration, by state; limits.listeners bounds them.".into(),
        kind: MetricKind::Gauge,
        samples: vec![
            series("open", |state| matches!(state, ListenerState::Open { .. })),
            series("opening", |state| matches!(state, ListenerState::Opening)),
            series("failed", |state| matches!(state, ListenerState::Failed { .. })),
        ],
    }
}
