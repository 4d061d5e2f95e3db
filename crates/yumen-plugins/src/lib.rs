//! The built-in plugins, one file each. This list is all the rest of the house knows of them.
//!
//! Plugins know no socket, file, runtime or clock: all they need comes with the exchange.

use yumen_plugin::Kind;

mod auth;
mod basic_auth;
mod consumer_restriction;
mod cors;
mod fault_injection;
pub mod inactive;
mod ip_restriction;
mod key_auth;
mod limit_conn;
mod limit_count;
mod limit_req;
mod limits;
mod mocking;
mod mqtt_proxy;
mod pattern;
pub mod prometheus;
mod proxy_rewrite;
mod query;
mod redirect;
mod request_id;
mod response_rewrite;
mod text;
mod uri_blocker;

#[cfg(test)]
#[allow(dead_code, reason = "each plugin uses the part it needs")]
mod testing;
#[cfg(test)]
mod tests;

/// The release whose resource model and plugin behaviour this one follows, as plugins name it.
pub const MODEL: &str = "APISIX/3.18.0";

/// Every built-in plugin.
pub const BUILTIN: &[Kind] = &[
    Kind::of_auth::<basic_auth::BasicAuth>(),
    Kind::of::<consumer_restriction::ConsumerRestriction>(),
    Kind::of::<cors::Cors>().with_metadata::<cors::Metadata>(),
    Kind::of::<fault_injection::FaultInjection>(),
    Kind::of::<ip_restriction::IpRestriction>(),
    Kind::of_auth::<key_auth::KeyAuth>(),
    Kind::of::<limit_conn::LimitConn>(),
    Kind::of::<limit_count::LimitCount>().with_metadata::<limit_count::Metadata>(),
    Kind::of::<limit_req::LimitReq>(),
    Kind::of::<mocking::Mocking>(),
    Kind::of::<mqtt_proxy::MqttProxy>(),
    Kind::of::<prometheus::Prometheus>().with_metadata::<prometheus::Metadata>(),
    Kind::of::<proxy_rewrite::ProxyRewrite>(),
    Kind::of::<redirect::Redirect>(),
    Kind::of::<request_id::RequestId>(),
    Kind::of::<response_rewrite::ResponseRewrite>(),
    Kind::of::<uri_blocker::UriBlocker>(),
];
