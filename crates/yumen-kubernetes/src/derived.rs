//! Results of units that other units read: parents of routes, policies, candidates of stream routes, groups of
//! Ingresses, and the keys of upstreams.
//!
//! A unit that reads such a result runs again when the result differs, and only then: the types hold no more than
//! the readers need.

mod gateway_report;
mod ingress_group;
mod parent;
mod parsed_ingress;
mod policy_output;
mod route_kind_conflicts;
mod stream_candidate;
mod upstream_key;

pub(crate) use gateway_report::{
    ConditionReason, GatewayPort, GatewayReport, SectionReport, SharedPort, SharedPortTable, SharedPortUse,
};
pub(crate) use ingress_group::{IngressGroup, IngressMember};
pub(crate) use parent::{AllowedNamespaces, ParentOutput, SectionOutput, SectionProtocol};
pub(crate) use parsed_ingress::ParsedIngress;
pub(crate) use policy_output::{BackendTlsRules, PolicyOutput, PolicyVerdict};
pub(crate) use route_kind_conflicts::RouteKindConflicts;
pub(crate) use stream_candidate::StreamRouteCandidate;
pub(crate) use upstream_key::{SectionKey, UpstreamFlavor, UpstreamKey, UpstreamSource};
