//! The annotations of ingress-nginx: a table of all names, and the reader of one Ingress.

mod admission;
mod auth_service;
mod dependences;
mod reader;
mod routing;
mod table;
mod tls;
mod upstream;
mod value_rule;

use std::sync::Arc;

use reader::AnnotationReader;

use super::controller::ControllerSettings;
use super::settings::IngressSettings;
use crate::model::ObjectMeta;

pub(super) use auth_service::{REDIRECT_PARAM, cache_rules, field_names, service_url};
pub(super) use table::{AnnotationVerdict, GROUPS};
pub(super) use tls::cipher_suites;
pub(super) use upstream::{field_replacement, next_upstream};
pub(super) use value_rule::{parse_networks, parse_size, parse_statuses, parse_switch};

/// The damage that the value of an annotation can do, as ingress-nginx grades it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AnnotationRisk {
    /// A choice or a number.
    Low,
    /// Text of limited characters.
    Medium,
    /// Text with variables or patterns.
    High,
    /// Configuration of the server.
    Critical,
}

/// The effect of an annotation that cannot be followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AnnotationConsequence {
    /// The annotation works, with a difference.
    Differs,
    /// The annotation has no effect, and none that a client or service could see is missing.
    NoEffect,
    /// The annotation is left out; the rest of the Ingress is served.
    LeftOut,
    /// All paths of the Ingress answer 503, since a protection is missing.
    IngressDenied,
    /// All paths of the hosts of the Ingress answer 403, since client certificates cannot be verified or the server
    /// snippet that protects them has no translation.
    HostDenied,
    /// The version of the Ingress is not taken: its last good version is served, if there is one.
    IngressRefused,
}

/// An annotation that is not followed as written.
#[derive(Debug, Clone, PartialEq)]
pub struct AnnotationProblem {
    /// Name with the prefix.
    pub annotation: Arc<str>,
    /// The consequence.
    pub consequence: AnnotationConsequence,
    /// The reason.
    pub reason: String,
    /// Another way to the same effect.
    pub way_over: Option<String>,
    /// Whether the consequence in ingress-nginx is the same, as for a value that is not valid.
    pub is_shared: bool,
    /// Whether an admission webhook refuses the Ingress for the value, as that of ingress-nginx does.
    pub is_inadmissible: bool,
}

/// Reads the annotations of one Ingress over the defaults of the controller.
///
/// A problem whose consequence is `IngressDenied` is also in the settings, as `auth.denial`; one with `HostDenied` as
/// `server.is_denied` or `snippets.server`. With `IngressRefused` the settings must not be used.
pub fn read_annotations(
    meta: &ObjectMeta,
    controller: &ControllerSettings,
) -> (IngressSettings, Vec<AnnotationProblem>) {
    let mut reader = AnnotationReader::new(meta, &controller.policy);
    let mut settings = controller.defaults.clone();
    routing::read_paths(&mut reader, &mut settings);
    routing::read_canary(&mut reader, &mut settings);
    routing::read_others(&mut reader, &mut settings);
    tls::read_hosts(&mut reader, &mut settings);
    tls::read_upstream_tls(&mut reader, &mut settings);
    admission::read_auth(&mut reader, &mut settings);
    auth_service::read_auth_service(&mut reader, controller, &mut settings);
    admission::read_limits(&mut reader, &mut settings);
    admission::read_cors(&mut reader, &mut settings);
    upstream::read_services(&mut reader, &mut settings);
    upstream::read_session(&mut reader, &mut settings);
    upstream::read_proxy(&mut reader, &mut settings);
    routing::read_snippets(&mut reader, &mut settings);
    dependences::report_lone(&mut reader);
    let problems = reader.finish();
    let of = |consequence| problems.iter().find(|problem| problem.consequence == consequence);
    if let Some(problem) = of(AnnotationConsequence::IngressDenied) {
        settings.auth.denial = Some(problem.to_string().into());
    }
    (settings, problems)
}

/// Formats as `nginx.ingress.kubernetes.io/auth-secret: reason`.
impl std::fmt::Display for AnnotationProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.annotation, self.reason)
    }
}

#[cfg(test)]
mod tests;
