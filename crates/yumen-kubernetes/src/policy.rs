//! Policies: BackendTLSPolicy, and those of `apisix.apache.org` for backends and HTTP routes.
//!
//! `translate_policy` writes a `PolicyOutput` as derived output, from the policy and its ConfigMaps or Secrets.
//! `port_policy` selects, for a port of a Service, the policy that holds among those that target it.
//! `translate_policy_status` writes the status: one entry per Gateway of `TrackedView::policy_users`, which counts the
//! `PolicyUse`s of routes.

mod judgment;
mod route_policy;
mod selection;
mod status;
mod traffic;

use std::sync::Arc;

use crate::derived::PolicyOutput;
use crate::engine::{DerivedOutput, TrackedView, UnitOutput};
use crate::model::{BackendTlsPolicyObject, ClusterKind, ObjectKey};

pub(crate) use route_policy::{RulePolicy, route_policies};
pub(crate) use selection::{PortTls, port_policy};
pub(crate) use traffic::{traffic_policies, traffic_policy};

/// The status of a policy of any kind.
pub(crate) fn translate_policy_status(view: &TrackedView<'_>, policy: &ObjectKey) -> UnitOutput {
    match policy.kind {
        ClusterKind::HttpRoutePolicy => route_policy::translate_status(view, policy),
        ClusterKind::BackendTrafficPolicy => traffic::translate_status(view, policy),
        _ => status::translate_status(view, policy),
    }
}

pub(crate) fn translate_policy(view: &TrackedView<'_>, policy: &ObjectKey) -> UnitOutput {
    let mut output = UnitOutput::default();
    if let Some(object) = view.get::<BackendTlsPolicyObject>(policy) {
        let verdict = judgment::judge(view, object).verdict;
        output.derived = Some(DerivedOutput::Policy(Arc::new(PolicyOutput { verdict })));
    }
    output
}
