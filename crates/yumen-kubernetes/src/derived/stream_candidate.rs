//! Routes that compete for a section of protocol TCP or UDP: the oldest is served.

use std::sync::Arc;

/// The resource of a TCPRoute or UDPRoute, should it be the oldest of a section. The unit of the route writes it, the
/// unit of the section reads it through the routes that are attached.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StreamRouteCandidate {
    /// Creation time, in seconds since 1970.
    pub(crate) created_s: i64,
    /// The members of a `stream_routes` object without `scopes`, as JSON.
    pub(crate) members: Arc<str>,
}
