//! The instance after all plugins: responses, edits of the request for the upstream, mirrors, edits of the response.

use yumen_config::InvalidSettings;
use yumen_config::resource::{ForwardedFieldsSpec, RedirectSpec, RouteActionsSpec};
use yumen_plugin::{
    BodyChunk, DryRunResult, Exchange, LocalResponse, PhaseSet, Plugin, ResponseBodyPhase, ResponseHead,
    ResponseHeadPhase, Step,
};

use crate::backend::apply_to_request;
use crate::fields::FieldEdits;
use crate::mirror::{self, MirrorAction};
use crate::redirect::RedirectAction;
use crate::response_rate::ResponseRate;
use crate::response_rewrite::ResponseFieldRewrite;
use crate::rewrite::PathRewrite;
use crate::{ActionUpstreams, forwarded, respond};

/// Actions behind all guards.
pub(crate) struct ForwardingActions {
    redirect: Option<RedirectAction>,
    respond: Option<LocalResponse>,
    forwarded: Option<ForwardedFieldsSpec>,
    request: FieldEdits,
    rewrite: Option<PathRewrite>,
    mirrors: Box<[MirrorAction]>,
    response: FieldEdits,
    response_rewrite: Option<ResponseFieldRewrite>,
    rate: Option<ResponseRate>,
}

impl ForwardingActions {
    /// The actions; `None` if there are none.
    pub(crate) fn build(
        spec: &RouteActionsSpec,
        redirect: Option<&RedirectSpec>,
        upstreams: &dyn ActionUpstreams,
    ) -> Result<Option<ForwardingActions>, InvalidSettings> {
        warn_of_unused(spec, upstreams);
        let mirrors = spec.mirrors.iter().flatten().enumerate();
        let actions = ForwardingActions {
            redirect: redirect.map(RedirectAction::build).transpose()?,
            respond: spec.respond.as_ref().map(respond::response),
            forwarded: spec.forwarded_fields,
            request: FieldEdits::new(spec.request_fields.as_ref()),
            rewrite: spec.rewrite.as_ref().map(PathRewrite::build).transpose()?,
            mirrors: mirrors.map(|(at, one)| MirrorAction::build(one, at, upstreams)).collect(),
            response: FieldEdits::new(spec.response_fields.as_ref()),
            response_rewrite: ResponseFieldRewrite::build(
                spec.response_rewrite.as_ref(),
                spec.hsts.as_ref(),
            )?,
            rate: ResponseRate::of(spec.limits.as_ref()),
        };
        Ok((actions.phases() != PhaseSet::NONE).then_some(actions))
    }

    fn edits_requests(&self) -> bool {
        self.redirect.is_some()
            || self.respond.is_some()
            || self.forwarded.is_some()
            || !self.request.is_empty()
            || self.rewrite.is_some()
            || !self.mirrors.is_empty()
    }

    /// Responds, or edits the request.
    fn act<'a>(&self, ex: &mut Exchange<'_>) -> Step<'a> {
        if let Some(response) = self.redirect.as_ref().and_then(|redirect| redirect.answer(ex)) {
            return Step::Respond(response);
        }
        if let Some(response) = &self.respond {
            return Step::Respond(response.clone());
        }
        if let Some(form) = self.forwarded {
            forwarded::apply(form, ex);
        }
        match apply_to_request(&self.request, self.rewrite.as_ref(), ex) {
            Ok(()) => Step::Continue,
            Err(refused) => Step::Respond(refused.response()),
        }
    }
}

/// Reports members that have no effect beside a response to every request.
fn warn_of_unused(spec: &RouteActionsSpec, upstreams: &dyn ActionUpstreams) {
    let redirects_all = spec.redirect.as_ref().is_some_and(|redirect| redirect.when.is_none());
    let answering = match (redirects_all, &spec.respond) {
        (true, _) => "redirect",
        (false, Some(_)) => "respond",
        (false, None) => return,
    };
    let members = [
        ("request_fields", spec.request_fields.is_some()),
        ("mirrors", spec.mirrors.is_some()),
        ("forwarded_fields", spec.forwarded_fields.is_some()),
    ];
    for (member, _) in members.into_iter().filter(|(_, is_written)| *is_written) {
        let message = format!("no effect: `{answering}` answers every request");
        upstreams.warn(&format!("actions.{member}"), message, "remove it");
    }
}

impl ForwardingActions {
    /// Whether no request passes.
    fn answers_all(&self) -> bool {
        self.respond.is_some() || self.redirect.as_ref().is_some_and(|redirect| !redirect.is_conditional())
    }
}

impl Plugin for ForwardingActions {
    fn phases(&self) -> PhaseSet {
        let request = if self.edits_requests() { PhaseSet::ACCESS } else { PhaseSet::NONE };
        let edits_response = !self.response.is_empty() || self.response_rewrite.is_some();
        let response = match (edits_response, self.rate) {
            (_, Some(_)) => PhaseSet::RESPONSE_HEAD | PhaseSet::RESPONSE_BODY,
            (true, None) => PhaseSet::RESPONSE_HEAD,
            (false, None) => PhaseSet::NONE,
        };
        request | response
    }

    fn access<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        if !self.answers_all()
            && let Some(bytes_max) = mirror::draw(&self.mirrors, ex)
        {
            return Step::NeedBody { bytes_max };
        }
        self.act(ex)
    }

    fn response_head(&self, ex: &mut ResponseHeadPhase<'_, '_>, head: &mut ResponseHead) {
        if let Some(rewrite) = &self.response_rewrite {
            rewrite.apply(ex, head);
        }
        self.response.apply_to_response(ex, head);
        if let Some(rate) = self.rate {
            rate.begin(ex);
        }
    }

    fn response_body(&self, ex: &mut ResponseBodyPhase<'_, '_>, chunk: BodyChunk) -> BodyChunk {
        match self.rate {
            Some(rate) => rate.pace(ex, chunk),
            None => chunk,
        }
    }

    fn responds_always_in(&self) -> Option<PhaseSet> {
        self.answers_all().then_some(PhaseSet::ACCESS)
    }

    fn dry_run(&self, _: PhaseSet, ex: &mut Exchange<'_>) -> DryRunResult {
        // Without drawing mirrors, which would change the random numbers of the worker.
        match self.act(ex) {
            Step::Respond(response) => DryRunResult::Respond(response),
            _ if self.mirrors.is_empty() => DryRunResult::Continue,
            _ => {
                let remarks: Vec<String> = self.mirrors.iter().map(MirrorAction::remark).collect();
                DryRunResult::Note(remarks.join("; ").into())
            }
        }
    }
}
