//! The instance before all plugins: bounds and error responses of the route, CORS, redirections that need no
//! authentication, and conditions on client certificates.

use std::sync::Arc;

use yumen_config::InvalidSettings;
use yumen_config::resource::{
    ErrorFormat, ErrorPagesSpec, ErrorResponsesSpec, RedirectSpec, RouteActionsSpec,
};
use yumen_http::Fields;
use yumen_plugin::{
    DryRunResult, ErrorPageRules, ErrorRules, Exchange, PhaseSet, Plugin, ResponseHead, ResponseHeadPhase,
    Step, UpstreamSlot,
};

use crate::ActionUpstreams;
use crate::client_certificate::CertificateRules;
use crate::cors::CorsAction;
use crate::redirect::RedirectAction;

/// Actions ahead of authentication.
pub(crate) struct ArrivalActions {
    cors: Option<CorsAction>,
    redirect: Option<RedirectAction>,
    certificate: Option<CertificateRules>,
    errors: Option<Arc<ErrorRules>>,
    body_bytes_max: Option<u64>,
    is_unlogged: bool,
}

impl ArrivalActions {
    /// The actions; `None` if there are none.
    pub(crate) fn build(
        spec: &RouteActionsSpec,
        redirect: Option<&RedirectSpec>,
        upstreams: &dyn ActionUpstreams,
    ) -> Result<Option<ArrivalActions>, InvalidSettings> {
        let certificate = spec.access.as_ref().and_then(|access| access.client_certificate.as_ref());
        let actions = ArrivalActions {
            cors: spec.cors.as_ref().map(CorsAction::new),
            redirect: redirect.map(RedirectAction::build).transpose()?,
            certificate: certificate.map(CertificateRules::build).transpose()?,
            errors: spec.errors.as_ref().map(|written| Arc::new(error_rules(written, upstreams))),
            body_bytes_max: spec.limits.as_ref().and_then(|limits| limits.body_bytes_max),
            is_unlogged: spec.access_log == Some(false),
        };
        Ok(actions.has_effect().then_some(actions))
    }

    fn has_effect(&self) -> bool {
        self.cors.is_some()
            || self.redirect.is_some()
            || self.certificate.is_some()
            || self.errors.is_some()
            || self.body_bytes_max.is_some()
            || self.is_unlogged
    }

    /// Sets the bounds of the exchange; returns the size that a body in the buffer exceeds.
    fn set_bounds(&self, ex: &mut Exchange<'_>) -> Option<usize> {
        ex.response.is_unlogged |= self.is_unlogged;
        if let Some(errors) = &self.errors {
            ex.response.errors = Some(errors.clone());
        }
        let bytes_max = self.body_bytes_max?;
        ex.body.bytes_max = Some(bytes_max);
        let bytes_max = usize::try_from(bytes_max).ok().filter(|bytes_max| *bytes_max != 0)?;
        // A body that was already read for a variable is checked here, since nothing checks it later.
        (ex.body.buffered.is_some() && ex.lacks_body(bytes_max)).then_some(bytes_max)
    }
}

/// Compiles the error responses.
fn error_rules(written: &ErrorResponsesSpec, upstreams: &dyn ActionUpstreams) -> ErrorRules {
    ErrorRules {
        is_html: written.format == ErrorFormat::Html,
        pages: written.pages.as_ref().map(|pages| page_rules(pages, upstreams)),
    }
}

fn page_rules(written: &ErrorPagesSpec, upstreams: &dyn ActionUpstreams) -> ErrorPageRules {
    let id = written.upstream_id.as_str();
    let upstream = upstreams.upstream(id).unwrap_or_else(|| {
        let message = format!("upstream {id} does not exist or is broken: error responses stay");
        upstreams.warn("actions.errors.pages.upstream_id", message, "create or fix the upstream");
        UpstreamSlot::default()
    });
    let mut fields = Fields::default();
    for (name, value) in written.fields.iter().flatten() {
        fields.add(name, value.as_bytes());
    }
    ErrorPageRules {
        upstream,
        statuses: written.statuses.as_slice().into(),
        without_endpoint: written.no_endpoint,
        path: written.path.as_str().into(),
        fields,
        timeout_ms: written.timeout_ms,
    }
}

impl Plugin for ArrivalActions {
    fn phases(&self) -> PhaseSet {
        match self.cors {
            Some(_) => PhaseSet::REWRITE | PhaseSet::RESPONSE_HEAD,
            None => PhaseSet::REWRITE,
        }
    }

    fn rewrite<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        if let Some(bytes_max) = self.set_bounds(ex) {
            return Step::NeedBody { bytes_max };
        }
        if let Some(response) = self.cors.as_ref().and_then(|cors| cors.arrive(ex)) {
            return Step::Respond(response);
        }
        if let Some(response) = self.redirect.as_ref().and_then(|redirect| redirect.answer(ex)) {
            return Step::Respond(response);
        }
        let refusal = self.certificate.as_ref().and_then(|rules| rules.refusal(ex));
        refusal.map_or(Step::Continue, Step::Respond)
    }

    fn response_head(&self, ex: &mut ResponseHeadPhase<'_, '_>, head: &mut ResponseHead) {
        if let Some(cors) = &self.cors {
            cors.edit_response(ex, head);
        }
    }

    fn responds_always_in(&self) -> Option<PhaseSet> {
        self.redirect.as_ref().filter(|redirect| !redirect.is_conditional()).map(|_| PhaseSet::REWRITE)
    }

    fn dry_run(&self, phase: PhaseSet, ex: &mut Exchange<'_>) -> DryRunResult {
        DryRunResult::by_running(self, phase, ex)
    }
}
