//! Drafts of status, free of times and of the state of the process.

use serde_json::{Map, Value};

use crate::resources::ResourceName;

/// The status of an object as far as the translation decides it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StatusDraft {
    /// `observedGeneration` of all conditions.
    pub generation: i64,
    /// Lists of conditions.
    pub entries: Vec<StatusEntry>,
    /// Further members of the status, such as `addresses`.
    pub fields: Map<String, Value>,
}

/// One list of conditions of a status.
#[derive(Debug, Clone, PartialEq)]
pub struct StatusEntry {
    /// The position of the list.
    pub place: StatusPlace,
    /// The conditions, in order.
    pub conditions: Vec<ConditionDraft>,
    /// Further members beside the conditions, such as `supportedKinds` and `attachedRoutes`.
    pub fields: Map<String, Value>,
}

/// The position of a list of conditions in a status.
#[derive(Debug, Clone, PartialEq)]
pub enum StatusPlace {
    /// `status.conditions`.
    Root,
    /// `status.listeners[]` of this name.
    Listener(String),
    /// `status.parents[]` of this controller with this `parentRef`.
    Parent(Value),
    /// `status.ancestors[]` of this controller with this `ancestorRef`.
    Ancestor(Value),
}

/// Status of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConditionState {
    /// The condition holds.
    True,
    /// The condition does not hold.
    False,
    /// Not decided yet.
    Unknown,
}

/// The way in which the state of a condition is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConditionValue {
    /// By the translation.
    Fixed(ConditionState),
    /// True once all resources in `needs` are applied and all their listeners are open; false with the reason
    /// `Pending` before, and `Invalid` if a resource is quarantined or a listener failed.
    WhenApplied,
    /// As `WhenApplied`, with failures tolerated beside one resource that serves.
    WhenAnyApplied,
    /// True, unless a listener in `needs` failed (`PortUnavailable`) or a resource is quarantined
    /// (`UnsupportedValue`).
    UnlessFailed,
    /// True, unless a resource in `needs` is quarantined or its listener failed (`SyncFailed`).
    UnlessRefused,
}

/// One condition.
#[derive(Debug, Clone, PartialEq)]
pub struct ConditionDraft {
    /// The type, such as `Accepted`.
    pub kind: &'static str,
    /// The state, or the rule by which the process decides it.
    pub value: ConditionValue,
    /// The reason if the state is fixed, or if it becomes true.
    pub reason: &'static str,
    /// A sentence for people.
    pub message: String,
    /// Resources on which the state depends.
    pub needs: Vec<ResourceName>,
}

impl ConditionDraft {
    /// A condition that the translation decides.
    pub fn fixed(
        kind: &'static str,
        is_true: bool,
        reason: &'static str,
        message: impl Into<String>,
    ) -> Self {
        let state = if is_true { ConditionState::True } else { ConditionState::False };
        let value = ConditionValue::Fixed(state);
        ConditionDraft { kind, value, reason, message: message.into(), needs: Vec::new() }
    }

    /// A condition that depends on resources.
    pub fn depending(
        kind: &'static str,
        value: ConditionValue,
        reason: &'static str,
        needs: Vec<ResourceName>,
    ) -> Self {
        ConditionDraft { kind, value, reason, message: String::new(), needs }
    }
}
