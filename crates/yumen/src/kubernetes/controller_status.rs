//! State of the controller, for metrics, `/status` and readiness.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};
use yumen_store::StateOrigin;

/// State of the controller, for metrics and `/status`.
pub(crate) struct KubernetesStatus {
    /// URL of the API server.
    pub(crate) server: String,
    pub(crate) is_settled: AtomicBool,
    /// Whether the control thread has a state, of the translation or the last good one.
    pub(super) is_published: AtomicBool,
    pub(crate) is_leader: AtomicBool,
    /// Whether the process lingers before its end: it accepts connections until load balancers have left it.
    pub(crate) is_ending: AtomicBool,
    pub(crate) translations: AtomicU64,
    /// The origin of the configuration in force.
    origin: Mutex<StateOrigin>,
}

impl KubernetesStatus {
    pub(crate) fn new(server: String) -> KubernetesStatus {
        KubernetesStatus {
            server,
            is_settled: AtomicBool::new(false),
            is_published: AtomicBool::new(false),
            is_leader: AtomicBool::new(false),
            is_ending: AtomicBool::new(false),
            translations: AtomicU64::new(0),
            origin: Mutex::new(StateOrigin::Store),
        }
    }

    pub(crate) fn origin(&self) -> StateOrigin {
        self.origin.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_origin(&self, origin: StateOrigin) {
        *self.origin.lock().unwrap_or_else(PoisonError::into_inner) = origin;
    }

    /// The member `store` of `/status`.
    pub(crate) fn document(&self) -> Value {
        json!({
            "kind": "kubernetes",
            "server": self.server,
            "settled": self.is_settled.load(Relaxed),
            "leader": self.is_leader.load(Relaxed),
        })
    }

    /// Names, texts and values of the gauges.
    pub(crate) fn gauges(&self) -> [(&'static str, &'static str, f64); 3] {
        let flag = |flag: &AtomicBool| f64::from(u8::from(flag.load(Relaxed)));
        [
            (
                "yumen_kubernetes_settled",
                "Whether every kind of Kubernetes objects was listed and its translation published.",
                flag(&self.is_settled),
            ),
            (
                "yumen_kubernetes_leader",
                "Whether this replica writes statuses and Services.",
                flag(&self.is_leader),
            ),
            (
                "yumen_kubernetes_translations",
                "Batches of changed Kubernetes objects that were translated.",
                self.translations.load(Relaxed) as f64,
            ),
        ]
    }
}

/// The end of the writes of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WritesEnd {
    /// The process ends: another replica takes the lease at once.
    Released,
    /// The successor of this process continues the lease, under the same identity.
    HandedOver,
}

/// Progress of the first publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StartStage {
    /// Kinds are being listed.
    Listing,
    /// As before, and the last good state was published meanwhile.
    Bridged,
    /// As before, and there is no last good state: the node is not ready.
    Unready,
    /// The translation is published.
    Settled,
}
