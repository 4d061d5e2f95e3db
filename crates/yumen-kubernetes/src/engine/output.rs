//! Outputs of units.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;
use yumen_base::problem::Problem;

use crate::delta::{ObjectIntent, ObjectPath};
use crate::derived::{
    GatewayReport, IngressGroup, IngressMember, ParentOutput, ParsedIngress, PolicyOutput,
    RouteKindConflicts, SectionKey, SharedPortTable, StreamRouteCandidate, UpstreamKey,
};
use crate::ingress_nginx::ControllerSettings;
use crate::model::ObjectKey;
use crate::resources::{ResourceName, TranslatedKind};
use crate::status::StatusDraft;

/// The output of a unit; empty for a unit whose object no longer exists.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct UnitOutput {
    /// Resources as compact JSON. Ids contain the name of the unit's object, so that units never share one.
    pub(crate) resources: BTreeMap<ResourceName, Arc<str>>,
    /// Drafts by object.
    pub(crate) statuses: BTreeMap<ObjectKey, StatusDraft>,
    /// Objects that the leader writes.
    pub(crate) objects: BTreeMap<ObjectPath, ObjectIntent>,
    /// Sections to which the route is attached; each counts one attached route.
    pub(crate) attachments: BTreeSet<SectionKey>,
    /// Upstreams that the resources name.
    pub(crate) upstreams: BTreeSet<UpstreamKey>,
    /// Objects whose plugins the resources name.
    pub(crate) plugin_sets: BTreeSet<ObjectKey>,
    /// Policies that the resources follow or refuse by, with the Gateway of the route.
    pub(crate) policies: BTreeSet<PolicyUse>,
    /// Groups that the Ingress of the unit belongs to.
    pub(crate) groups: BTreeSet<(IngressGroup, IngressMember)>,
    /// Listeners that routes attach to, by Gateway or ListenerSet.
    pub(crate) parents: BTreeMap<ObjectKey, Arc<ParentOutput>>,
    /// The result for units of higher rank.
    pub(crate) derived: Option<DerivedOutput>,
    /// Problems that no status condition shows.
    pub(crate) problems: Vec<Problem>,
}

impl UnitOutput {
    /// Adds a resource.
    pub(crate) fn add_resource(&mut self, kind: TranslatedKind, id: impl Into<Arc<str>>, value: &Value) {
        self.resources.insert(ResourceName::new(kind, id), value.to_string().into());
    }
}

/// A policy in use by a route of a Gateway.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PolicyUse {
    pub(crate) policy: ObjectKey,
    pub(crate) gateway: ObjectKey,
}

/// A result that units of higher rank read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum DerivedOutput {
    Gateway(Arc<GatewayReport>),
    SharedPorts(Arc<SharedPortTable>),
    Policy(Arc<PolicyOutput>),
    Stream(Arc<StreamRouteCandidate>),
    RouteKinds(Arc<RouteKindConflicts>),
    IngressDefaults(Arc<ControllerSettings>),
    Ingress(Arc<ParsedIngress>),
}
