//! The built-in plugins, one file each. Other crates use them only through the list [`BUILTIN`].
//!
//! Plugins access no socket, file, runtime or clock: all inputs come with the exchange.

use yumen_plugin::PluginKind;

use logging::{LoggerMetadata, LoggerPlugin};

mod acl;
pub mod adaptive_concurrency;
mod api_breaker;
mod attach_consumer_label;
mod auth;
mod authz_casbin;
mod authz_casdoor;
mod authz_keycloak;
mod basic_auth;
mod brotli;
mod cas_auth;
mod clickhouse_logger;
mod client_control;
mod code_login;
mod compression;
mod consumer_restriction;
mod cookie_privacy;
mod cors;
mod csrf;
mod data_mask;
mod datadog;
mod deadline;
mod decoding;
mod degraphql;
mod dingtalk_auth;
mod directory_login;
mod edits;
mod elasticsearch_logger;
mod error_log_logger;
mod fault_injection;
mod feishu_auth;
mod file_logger;
mod forward_auth;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod google_cloud_logging;
mod grpc_transcode;
mod grpc_web;
mod gzip;
mod hmac_auth;
mod http_logger;
pub mod inactive;
mod ip_restriction;
mod jose;
mod jwe_decrypt;
mod jwt_auth;
mod kafka_logger;
mod key_auth;
mod ldap_auth;
mod ldap_auth_advanced;
mod limit_conn;
mod limit_count;
mod limit_req;
mod limits;
mod log_time;
mod logging;
mod loggly;
mod loki_logger;
mod mocking;
mod mqtt_proxy;
mod multi_auth;
mod opa;
mod openid_connect;
mod opentelemetry;
mod pattern;
pub mod prometheus;
mod proxy_buffering;
mod proxy_control;
mod proxy_mirror;
mod proxy_rewrite;
mod public_api;
mod query;
mod real_ip;
mod recent_texts;
mod redirect;
mod referer_restriction;
mod request_id;
mod request_validation;
mod response_rewrite;
mod service;
mod session;
mod sink_url;
mod skywalking;
mod skywalking_logger;
mod sls_logger;
mod splunk_hec_logging;
mod syslog;
mod target_builder;
mod tcp_logger;
mod tencent_cloud_cls;
mod text;
mod traces;
mod traffic_split;
mod ua_restriction;
mod udp_logger;
mod uri_blocker;
mod wolf_rbac;
mod zipkin;
mod zstd;

pub use limits::usage as limit_usage;
pub use openid_connect::operator_login;

#[cfg(test)]
#[allow(dead_code, reason = "each plugin uses the part it needs")]
mod testing;
#[cfg(test)]
mod tests;

/// The release whose resource model and plugin behaviour Yumen follows, as sent in response fields.
pub const MODEL: &str = "APISIX/3.18.0";

/// All built-in plugins.
pub const BUILTIN: &[PluginKind] = &[
    PluginKind::of::<acl::AclPlugin>(),
    PluginKind::of::<adaptive_concurrency::AdaptiveConcurrency>(),
    PluginKind::of::<api_breaker::ApiBreaker>(),
    PluginKind::of::<attach_consumer_label::AttachConsumerLabel>(),
    PluginKind::of::<authz_casbin::AuthzCasbin>().with_metadata::<authz_casbin::AuthzCasbinMetadata>(),
    PluginKind::of::<authz_casdoor::AuthzCasdoor>(),
    PluginKind::of::<authz_keycloak::AuthzKeycloak>(),
    PluginKind::of_auth::<basic_auth::BasicAuth>(),
    PluginKind::of::<brotli::Brotli>(),
    PluginKind::of::<cas_auth::CasAuth>(),
    PluginKind::of::<LoggerPlugin<clickhouse_logger::ClickhouseLogger>>().with_metadata::<LoggerMetadata>(),
    PluginKind::of::<client_control::ClientControl>(),
    PluginKind::of::<consumer_restriction::ConsumerRestriction>(),
    PluginKind::of::<cors::Cors>().with_metadata::<cors::CorsMetadata>(),
    PluginKind::of::<csrf::Csrf>(),
    PluginKind::of::<data_mask::DataMask>(),
    PluginKind::of::<LoggerPlugin<datadog::DatadogLogger>>().with_metadata::<datadog::DatadogMetadata>(),
    PluginKind::of::<deadline::DeadlinePlugin>(),
    PluginKind::of::<degraphql::Degraphql>(),
    PluginKind::of::<dingtalk_auth::DingtalkAuth>(),
    PluginKind::of::<LoggerPlugin<elasticsearch_logger::ElasticsearchLogger>>()
        .with_metadata::<LoggerMetadata>(),
    PluginKind::of::<error_log_logger::ErrorLogLogger>()
        .with_metadata::<error_log_logger::ErrorLogMetadata>()
        .with_node_log(error_log_logger::open_node_log),
    PluginKind::of::<fault_injection::FaultInjection>(),
    PluginKind::of::<feishu_auth::FeishuAuth>(),
    PluginKind::of::<LoggerPlugin<file_logger::FileLogger>>()
        .with_metadata::<file_logger::FileLoggerMetadata>(),
    PluginKind::of::<forward_auth::ForwardAuth>(),
    PluginKind::of::<LoggerPlugin<google_cloud_logging::GoogleCloudLogging>>()
        .with_metadata::<LoggerMetadata>(),
    PluginKind::of::<grpc_transcode::GrpcTranscode>(),
    PluginKind::of::<grpc_web::GrpcWeb>(),
    PluginKind::of::<gzip::Gzip>(),
    PluginKind::of_auth::<hmac_auth::HmacAuth>(),
    PluginKind::of::<LoggerPlugin<http_logger::HttpLogger>>().with_metadata::<LoggerMetadata>(),
    PluginKind::of::<ip_restriction::IpRestriction>(),
    PluginKind::of_auth::<jwe_decrypt::JweDecrypt>(),
    PluginKind::of_auth::<jwt_auth::JwtAuth>(),
    PluginKind::of::<LoggerPlugin<kafka_logger::KafkaLogger>>().with_metadata::<LoggerMetadata>(),
    PluginKind::of_auth::<key_auth::KeyAuth>(),
    PluginKind::of_auth::<ldap_auth::LdapAuth>(),
    PluginKind::of_auth::<ldap_auth_advanced::LdapAuthAdvanced>(),
    PluginKind::of::<limit_conn::LimitConn>(),
    PluginKind::of::<limit_count::LimitCount>().with_metadata::<limit_count::LimitCountMetadata>(),
    PluginKind::of::<limit_req::LimitReq>(),
    PluginKind::of::<LoggerPlugin<loggly::LogglyLogger>>().with_metadata::<loggly::LogglyMetadata>(),
    PluginKind::of::<LoggerPlugin<loki_logger::LokiLogger>>().with_metadata::<LoggerMetadata>(),
    PluginKind::of::<mocking::Mocking>(),
    PluginKind::of::<mqtt_proxy::MqttProxy>(),
    PluginKind::of::<multi_auth::MultiAuth>(),
    PluginKind::of::<opa::OpaPlugin>(),
    PluginKind::of::<openid_connect::OpenidConnect>(),
    PluginKind::of::<opentelemetry::OpenTelemetry>().with_metadata::<opentelemetry::OpenTelemetryMetadata>(),
    PluginKind::of::<prometheus::Prometheus>().with_metadata::<prometheus::PrometheusMetadata>(),
    PluginKind::of::<proxy_buffering::ProxyBuffering>(),
    PluginKind::of::<proxy_control::ProxyControl>(),
    PluginKind::of::<proxy_mirror::ProxyMirror>(),
    PluginKind::of::<proxy_rewrite::ProxyRewrite>(),
    PluginKind::of::<public_api::PublicApi>(),
    PluginKind::of::<real_ip::RealIp>(),
    PluginKind::of::<redirect::Redirect>(),
    PluginKind::of::<referer_restriction::RefererRestriction>(),
    PluginKind::of::<request_id::RequestId>(),
    PluginKind::of::<request_validation::RequestValidation>(),
    PluginKind::of::<response_rewrite::ResponseRewrite>(),
    PluginKind::of::<skywalking::SkywalkingPlugin>(),
    PluginKind::of::<LoggerPlugin<skywalking_logger::SkywalkingLogger>>().with_metadata::<LoggerMetadata>(),
    PluginKind::of::<LoggerPlugin<sls_logger::SlsLogger>>().with_metadata::<LoggerMetadata>(),
    PluginKind::of::<LoggerPlugin<splunk_hec_logging::SplunkHecLogging>>().with_metadata::<LoggerMetadata>(),
    PluginKind::of::<LoggerPlugin<syslog::SyslogLogger>>().with_metadata::<LoggerMetadata>(),
    PluginKind::of::<LoggerPlugin<tcp_logger::TcpLogger>>().with_metadata::<LoggerMetadata>(),
    PluginKind::of::<LoggerPlugin<tencent_cloud_cls::TencentCloudCls>>().with_metadata::<LoggerMetadata>(),
    PluginKind::of::<traffic_split::TrafficSplit>(),
    PluginKind::of::<ua_restriction::UaRestriction>(),
    PluginKind::of::<LoggerPlugin<udp_logger::UdpLogger>>().with_metadata::<LoggerMetadata>(),
    PluginKind::of::<uri_blocker::UriBlocker>(),
    PluginKind::of_auth::<wolf_rbac::WolfRbac>(),
    PluginKind::of::<zipkin::ZipkinPlugin>(),
    PluginKind::of::<zstd::Zstd>(),
];
