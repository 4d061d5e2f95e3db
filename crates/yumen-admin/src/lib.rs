//! The admin, control, status and webhook listeners: HTTP for operators and their tools, on the control runtime.
//!
//! The gateway is known only through closures, traits and the store. Must not know workers or the inside of the proxy.

mod access;
mod admin;
mod admission;
mod api;
mod completed_logins;
mod configs;
mod contract;
mod control_api;
mod crud;
mod dashboard;
mod exposition;
mod host_check;
mod index;
pub mod keys;
mod lists;
mod login_guard;
mod open_metrics;
mod openapi;
mod operator_identity;
mod plugins;
mod provider_login;
mod query;
mod refusal;
mod reply;
mod revision;
mod rows;
mod schema;
mod secrets;
mod serve;
mod sessions;
mod status;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod tls;
mod v1;
mod validate;
mod webhook;
mod whole_body;

pub use access::AdminAccess;
pub use admin::{serve_api, serve_local};
pub use api::AdminState;
pub use contract::contract_router;
pub use control_api::{ControlState, Described, control_routes, serve_control};
pub use exposition::{exposition, left_out};
pub use host_check::AllowedHosts;
pub use login_guard::LoginGuard;
pub use openapi::{ApiArgument, ApiEndpoint, ApiPayload, ArgumentForm, endpoints, openapi};
pub use operator_identity::{IdentityFuture, IdentityProvider, IdentityRefusal};
pub use secrets::SecretVisibility;
pub use status::{Document, StatusState, serve_status};
pub use tls::AdminTls;
pub use v1::{ClusterView, LiveGateway, NodeView, V1State};
pub use webhook::{WebhookAnswer, WebhookHandler, serve_webhook};
