//! The instance after all plugins: responses, edits of the request for the upstream, mirrors, edits of the response.

use yumen_config::InvalidSettings;
use yumen_config::resource::{RedirectSpec, RouteActionsSpec};
use yumen_plugin::{
    DryRunResult, Exchange, LocalResponse, PhaseSet, Plugin, ResponseHead, ResponseHeadPhase, Step,
};

use crate::backend::apply_to_request;
use crate::fields::FieldEdits;
use crate::mirror::{self, MirrorAction};
use crate::redirect::RedirectAction;
use crate::rewrite::PathRewrite;
use crate::{ActionUpstreams, respond};

/// A response to every request.
enum FixedAnswer {
    Redirect(RedirectAction),
    Response(LocalResponse),
}

/// Actions behind all guards.
pub(crate) struct ForwardingActions {
    answer: Option<FixedAnswer>,
    request: FieldEdits,
    rewrite: Option<PathRewrite>,
    mirrors: Box<[MirrorAction]>,
    response: FieldEdits,
}

impl ForwardingActions {
    /// The actions; `None` if there are none.
    pub(crate) fn build(
        spec: &RouteActionsSpec,
        redirect: Option<&RedirectSpec>,
        upstreams: &dyn ActionUpstreams,
    ) -> Result<Option<ForwardingActions>, InvalidSettings> {
        let answer = match (redirect, &spec.respond) {
            (Some(redirect), _) => Some(FixedAnswer::Redirect(RedirectAction::build(redirect)?)),
            (None, Some(written)) => Some(FixedAnswer::Response(respond::response(written))),
            (None, None) => None,
        };
        warn_of_unused(spec, upstreams);
        let mirrors = spec.mirrors.iter().flatten().enumerate();
        let actions = ForwardingActions {
            answer,
            request: FieldEdits::new(spec.request_fields.as_ref()),
            rewrite: spec.rewrite.as_ref().map(PathRewrite::build).transpose()?,
            mirrors: mirrors.map(|(at, one)| MirrorAction::build(one, at, upstreams)).collect(),
            response: FieldEdits::new(spec.response_fields.as_ref()),
        };
        Ok((actions.phases() != PhaseSet::NONE).then_some(actions))
    }

    fn edits_requests(&self) -> bool {
        self.answer.is_some()
            || !self.request.is_empty()
            || self.rewrite.is_some()
            || !self.mirrors.is_empty()
    }

    /// Responds, or edits the request.
    fn act<'a>(&self, ex: &mut Exchange<'_>) -> Step<'a> {
        match &self.answer {
            Some(FixedAnswer::Redirect(redirect)) => return Step::Respond(redirect.respond(ex)),
            Some(FixedAnswer::Response(response)) => return Step::Respond(response.clone()),
            None => {}
        }
        match apply_to_request(&self.request, self.rewrite.as_ref(), ex) {
            Ok(()) => Step::Continue,
            Err(refused) => Step::Respond(refused.response()),
        }
    }
}

/// Reports members that have no effect beside a response to every request.
fn warn_of_unused(spec: &RouteActionsSpec, upstreams: &dyn ActionUpstreams) {
    let answering = match (&spec.redirect, &spec.respond) {
        (Some(_), _) => "redirect",
        (None, Some(_)) => "respond",
        (None, None) => return,
    };
    let members = [("request_fields", spec.request_fields.is_some()), ("mirrors", spec.mirrors.is_some())];
    for (member, _) in members.into_iter().filter(|(_, is_written)| *is_written) {
        let message = format!("no effect: `{answering}` answers every request");
        upstreams.warn(&format!("actions.{member}"), message, "remove it");
    }
}

impl Plugin for ForwardingActions {
    fn phases(&self) -> PhaseSet {
        let request = if self.edits_requests() { PhaseSet::ACCESS } else { PhaseSet::NONE };
        let response = if self.response.is_empty() { PhaseSet::NONE } else { PhaseSet::RESPONSE_HEAD };
        request | response
    }

    fn access<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        if self.answer.is_none()
            && let Some(bytes_max) = mirror::draw(&self.mirrors, ex)
        {
            return Step::NeedBody { bytes_max };
        }
        self.act(ex)
    }

    fn response_head(&self, _: &mut ResponseHeadPhase<'_, '_>, head: &mut ResponseHead) {
        self.response.apply_to_response(head);
    }

    fn responds_always_in(&self) -> Option<PhaseSet> {
        self.answer.is_some().then_some(PhaseSet::ACCESS)
    }

    fn dry_run(&self, _: PhaseSet, ex: &mut Exchange<'_>) -> DryRunResult {
        // Without drawing mirrors, which would change the random numbers of the worker.
        match self.act(ex) {
            Step::Respond(response) => DryRunResult::Respond(response),
            _ if self.answer.is_some() || self.mirrors.is_empty() => DryRunResult::Continue,
            _ => {
                let remarks: Vec<String> = self.mirrors.iter().map(MirrorAction::remark).collect();
                DryRunResult::Note(remarks.join("; ").into())
            }
        }
    }
}
