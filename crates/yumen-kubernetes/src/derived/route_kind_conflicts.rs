//! Routes that an older route of the other kind keeps from a listener.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::ObjectKey;

/// Of the HTTPRoutes and GRPCRoutes with a common host name on a listener, only those of one kind are accepted.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct RouteKindConflicts {
    /// The older route, by listener and route.
    pub(crate) rivals: BTreeMap<(Arc<str>, ObjectKey), ObjectKey>,
}
