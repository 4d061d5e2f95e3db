//! Upstreams of Service ports.
//!
//! `translate_upstream` writes one `upstreams` resource with the id of the key: nodes by `endpoints`, scheme by flavor
//! and appProtocol, TLS by the policy that applies. A Service or port that does not exist gives no resource; the route
//! that names it then answers 500 for the share.

use crate::derived::UpstreamKey;
use crate::engine::{TrackedView, UnitOutput};

pub(crate) fn translate_upstream(_view: &TrackedView<'_>, _key: &UpstreamKey) -> UnitOutput {
    UnitOutput::default()
}
