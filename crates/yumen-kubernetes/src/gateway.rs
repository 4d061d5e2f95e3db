//! Gateways: GatewayClass, Gateway, ListenerSet and their status; listeners, scopes, certificates, Services.

mod addresses;
mod certificates;
mod class;
mod client_rules;
mod conflicts;
mod features;
mod overlap;
mod resources;
mod sections;
mod service;
mod shared_ports;
mod slices;
mod status;
mod unit;

pub(crate) use class::translate_class;
pub(crate) use shared_ports::translate_shared_ports;
pub(crate) use slices::translate_gateway_slices;
pub(crate) use status::{translate_gateway_status, translate_listener_set_status};
pub(crate) use unit::translate_gateway;
