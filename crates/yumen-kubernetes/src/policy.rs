//! BackendTLSPolicy.
//!
//! `translate_policy` writes a `PolicyOutput` as derived output, from the policy and its ConfigMaps or Secrets.
//! `port_policy` selects, for a port of a Service, the policy that holds among those that target it.
//! `translate_policy_status` writes the status: one entry per Gateway of `TrackedView::policy_users`, which counts the
//! `PolicyUse`s of routes.

mod judgment;
mod selection;
mod status;

use std::sync::Arc;

use crate::derived::PolicyOutput;
use crate::engine::{DerivedOutput, TrackedView, UnitOutput};
use crate::model::{BackendTlsPolicyObject, ObjectKey};

pub(crate) use selection::{PortTls, port_policy};
pub(crate) use status::translate_policy_status;

pub(crate) fn translate_policy(view: &TrackedView<'_>, policy: &ObjectKey) -> UnitOutput {
    let mut output = UnitOutput::default();
    if let Some(object) = view.get::<BackendTlsPolicyObject>(policy) {
        let verdict = judgment::judge(view, object).verdict;
        output.derived = Some(DerivedOutput::Policy(Arc::new(PolicyOutput { verdict })));
    }
    output
}
