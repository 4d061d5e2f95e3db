//! The built-in plugins, one file each. This list is all the rest of the house knows of them.
//!
//! Plugins know no socket, file, runtime or clock: all they need comes with the exchange.

use yumen_plugin::Kind;

pub mod adaptive_concurrency;
mod api_breaker;
mod auth;
mod basic_auth;
mod brotli;
mod client_control;
mod compression;
mod consumer_restriction;
mod cors;
mod csrf;
mod deadline;
mod decoding;
mod degraphql;
mod fault_injection;
mod forward_auth;
mod grpc_transcode;
mod grpc_web;
mod gzip;
mod hmac_auth;
pub mod inactive;
mod ip_restriction;
mod jwt_auth;
mod key_auth;
mod limit_conn;
mod limit_count;
mod limit_req;
mod limits;
mod mocking;
mod mqtt_proxy;
mod pattern;
pub mod prometheus;
mod proxy_buffering;
mod proxy_control;
mod proxy_mirror;
mod proxy_rewrite;
mod query;
mod real_ip;
mod redirect;
mod referer_restriction;
mod request_id;
mod request_validation;
mod response_rewrite;
mod target_builder;
mod text;
mod traffic_split;
mod ua_restriction;
mod uri_blocker;
mod zstd;

pub use limits::usage as limit_usage;

#[cfg(test)]
#[allow(dead_code, reason = "each plugin uses the part it needs")]
mod testing;
#[cfg(test)]
mod tests;

/// The release whose resource model and plugin behaviour this one follows, as plugins name it.
pub const MODEL: &str = "APISIX/3.18.0";

/// Every built-in plugin.
pub const BUILTIN: &[Kind] = &[
    Kind::of::<adaptive_concurrency::AdaptiveConcurrency>(),
    Kind::of::<api_breaker::ApiBreaker>(),
    Kind::of_auth::<basic_auth::BasicAuth>(),
    Kind::of::<brotli::Brotli>(),
    Kind::of::<client_control::ClientControl>(),
    Kind::of::<consumer_restriction::ConsumerRestriction>(),
    Kind::of::<cors::Cors>().with_metadata::<cors::Metadata>(),
    Kind::of::<csrf::Csrf>(),
    Kind::of::<deadline::Deadline>(),
    Kind::of::<degraphql::Degraphql>(),
    Kind::of::<fault_injection::FaultInjection>(),
    Kind::of::<forward_auth::ForwardAuth>(),
    Kind::of::<grpc_transcode::GrpcTranscode>(),
    Kind::of::<grpc_web::GrpcWeb>(),
    Kind::of::<gzip::Gzip>(),
    Kind::of_auth::<hmac_auth::HmacAuth>(),
    Kind::of::<ip_restriction::IpRestriction>(),
    Kind::of_auth::<jwt_auth::JwtAuth>(),
    Kind::of_auth::<key_auth::KeyAuth>(),
    Kind::of::<limit_conn::LimitConn>(),
    Kind::of::<limit_count::LimitCount>().with_metadata::<limit_count::Metadata>(),
    Kind::of::<limit_req::LimitReq>(),
    Kind::of::<mocking::Mocking>(),
    Kind::of::<mqtt_proxy::MqttProxy>(),
    Kind::of::<prometheus::Prometheus>().with_metadata::<prometheus::Metadata>(),
    Kind::of::<proxy_buffering::ProxyBuffering>(),
    Kind::of::<proxy_control::ProxyControl>(),
    Kind::of::<proxy_mirror::ProxyMirror>(),
    Kind::of::<proxy_rewrite::ProxyRewrite>(),
    Kind::of::<real_ip::RealIp>(),
    Kind::of::<redirect::Redirect>(),
    Kind::of::<referer_restriction::RefererRestriction>(),
    Kind::of::<request_id::RequestId>(),
    Kind::of::<request_validation::RequestValidation>(),
    Kind::of::<response_rewrite::ResponseRewrite>(),
    Kind::of::<traffic_split::TrafficSplit>(),
    Kind::of::<ua_restriction::UaRestriction>(),
    Kind::of::<uri_blocker::UriBlocker>(),
    Kind::of::<zstd::Zstd>(),
];
