//! Where the configuration that is served comes from, as operators see it: the store, or the last good state.
//!
//! Reads a fallback; opens and heals nothing.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};
use yumen_base::metric::{self, Family, Gather, MetricKind, Sample};
use yumen_store::{Fallback, Origin};

/// What tells the origin; a store without a fallback is always there.
#[derive(Clone)]
pub(crate) struct ConfigSource(pub(crate) Option<Arc<Fallback>>);

impl ConfigSource {
    fn origin(&self) -> Origin {
        self.0.as_ref().map_or(Origin::Store, |fallback| fallback.status())
    }

    /// The members `/status` shows of it.
    pub(crate) fn document(&self) -> Map<String, Value> {
        let mut members = Map::new();
        match self.origin() {
            Origin::Store => drop(members.insert("config_source".into(), json!("store"))),
            Origin::LastGood { reason, since } => {
                members.insert("config_source".into(), json!("last_good"));
                members.insert("config_source_reason".into(), json!(reason));
                members.insert("config_source_since_unix_ms".into(), json!(unix_ms(since)));
            }
        }
        members
    }
}

impl Gather for ConfigSource {
    fn gather(&self, out: &mut Vec<Family>) {
        let is_store = self.origin() == Origin::Store;
        let sample = |source: &str, holds: bool| Sample {
            labels: vec![("source", source.to_owned())],
            value: metric::Value::Number(f64::from(u8::from(holds))),
        };
        out.push(Family {
            name: "yumen_config_source".into(),
            help: "1 for where the configuration comes from: the store, or the last good state while that cannot be opened."
                .into(),
            kind: MetricKind::Gauge,
            samples: vec![sample("store", is_store), sample("last_good", !is_store)],
        });
    }
}

fn unix_ms(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
