//! The table of annotations: 136 names and 2 aliases, each with its effect or the reason why it has none.

mod admission;
mod routes;
mod services;

use super::value_rule::ValueRule;
use super::{AnnotationConsequence, AnnotationRisk};

/// Whether an annotation is followed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum AnnotationVerdict {
    /// It has the effect that it has in ingress-nginx.
    Works,
    /// It has this difference.
    Differs(&'static str),
    /// It has no effect, for this reason; clients and services see no difference.
    NoEffect(&'static str),
    /// It is refused.
    Refused {
        /// The consequence of a value other than `harmless`.
        consequence: AnnotationConsequence,
        /// The reason.
        reason: &'static str,
        /// Another way to the same effect.
        way_over: &'static str,
    },
}

/// An annotation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AnnotationRow {
    /// Name without the prefix.
    pub(crate) name: &'static str,
    /// Another name with the same meaning, read if this one is absent.
    pub(crate) alias: Option<&'static str>,
    /// The risk.
    pub(crate) risk: AnnotationRisk,
    /// The form of values.
    pub(crate) rule: ValueRule,
    /// The consequence of another form.
    pub(crate) invalid: AnnotationConsequence,
    /// A value that asks for nothing, so that no verdict but `Works` matters.
    pub(crate) harmless: &'static str,
    /// Whether it is followed.
    pub(crate) verdict: AnnotationVerdict,
}

impl AnnotationRow {
    const fn new(
        name: &'static str,
        risk: AnnotationRisk,
        rule: ValueRule,
        invalid: AnnotationConsequence,
    ) -> AnnotationRow {
        let verdict = AnnotationVerdict::Works;
        AnnotationRow { name, alias: None, risk, rule, invalid, harmless: "", verdict }
    }

    const fn with_alias(mut self, alias: &'static str) -> AnnotationRow {
        self.alias = Some(alias);
        self
    }

    const fn harmless(mut self, value: &'static str) -> AnnotationRow {
        self.harmless = value;
        self
    }

    const fn differs(mut self, difference: &'static str) -> AnnotationRow {
        self.verdict = AnnotationVerdict::Differs(difference);
        self
    }

    const fn no_effect(mut self, reason: &'static str) -> AnnotationRow {
        self.verdict = AnnotationVerdict::NoEffect(reason);
        self
    }

    const fn left_out(mut self, reason: &'static str, way_over: &'static str) -> AnnotationRow {
        let consequence = AnnotationConsequence::LeftOut;
        self.verdict = AnnotationVerdict::Refused { consequence, reason, way_over };
        self
    }

    const fn denied(mut self, reason: &'static str, way_over: &'static str) -> AnnotationRow {
        let consequence = AnnotationConsequence::IngressDenied;
        self.verdict = AnnotationVerdict::Refused { consequence, reason, way_over };
        self
    }
}

/// A part of the table with its title.
pub(crate) struct AnnotationGroup {
    pub(crate) title: &'static str,
    pub(crate) rows: &'static [AnnotationRow],
}

/// All annotations.
pub(crate) const GROUPS: [AnnotationGroup; 11] = [
    AnnotationGroup { title: "Paths and redirects", rows: routes::PATHS },
    AnnotationGroup { title: "Hosts and client certificates", rows: admission::HOSTS },
    AnnotationGroup { title: "Authentication", rows: admission::AUTHENTICATION },
    AnnotationGroup { title: "Addresses and limits", rows: admission::LIMITS },
    AnnotationGroup { title: "Cross-origin resource sharing", rows: admission::CORS },
    AnnotationGroup { title: "Canary", rows: routes::CANARY },
    AnnotationGroup { title: "Services", rows: services::SERVICES },
    AnnotationGroup { title: "Session affinity", rows: services::SESSIONS },
    AnnotationGroup { title: "Requests and responses", rows: services::PROXY },
    AnnotationGroup { title: "Fields, mirrors, errors and logs", rows: routes::OTHERS },
    AnnotationGroup { title: "Snippets and web application firewall", rows: routes::SNIPPETS },
];

/// The annotation of a name without the prefix, which may be an alias.
pub(crate) fn find_row(name: &str) -> Option<&'static AnnotationRow> {
    let mut rows = GROUPS.iter().flat_map(|group| group.rows);
    rows.find(|row| row.name == name || row.alias == Some(name))
}

/// Names that ingress-nginx had once, or that are often written, and that version 1.15 ignores too.
pub(crate) const IGNORED_EVERYWHERE: [&str; 22] = [
    "add-base-url",
    "enable-influxdb",
    "enable-opentracing",
    "enable-websockets",
    "client-header-buffer-size",
    "global-rate-limit",
    "global-rate-limit-header-name",
    "global-rate-limit-ignored-cidrs",
    "global-rate-limit-key",
    "global-rate-limit-window",
    "hsts",
    "hsts-include-subdomains",
    "hsts-max-age",
    "hsts-preload",
    "opentracing-trust-incoming-span",
    "proxy-buffers-size",
    "secure-backends",
    "secure-verify-ca-secret",
    "session-cookie-hash",
    "ssl-protocols",
    "use-forwarded-headers",
    "websocket-services",
];
