//! Gateways: GatewayClass, Gateway, ListenerSet and their status; listeners, scopes, certificates, Services.

use std::sync::Arc;

use crate::engine::{TrackedView, UnitOutput};
use crate::model::ObjectKey;

pub(crate) fn translate_class(_view: &TrackedView<'_>, _name: &Arc<str>) -> UnitOutput {
    UnitOutput::default()
}

pub(crate) fn translate_gateway(_view: &TrackedView<'_>, _key: &ObjectKey) -> UnitOutput {
    UnitOutput::default()
}

pub(crate) fn translate_shared_ports(_view: &TrackedView<'_>) -> UnitOutput {
    UnitOutput::default()
}

pub(crate) fn translate_gateway_status(_view: &TrackedView<'_>, _key: &ObjectKey) -> UnitOutput {
    UnitOutput::default()
}

pub(crate) fn translate_listener_set_status(_view: &TrackedView<'_>, _key: &ObjectKey) -> UnitOutput {
    UnitOutput::default()
}
