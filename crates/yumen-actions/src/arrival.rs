//! The instance before all plugins: CORS, and redirections that need no authentication.

use yumen_config::InvalidSettings;
use yumen_config::resource::{CorsSpec, RedirectSpec};
use yumen_plugin::{DryRunResult, Exchange, PhaseSet, Plugin, ResponseHead, ResponseHeadPhase, Step};

use crate::cors::CorsAction;
use crate::redirect::RedirectAction;

/// Actions ahead of authentication.
pub(crate) struct ArrivalActions {
    cors: Option<CorsAction>,
    redirect: Option<RedirectAction>,
}

impl ArrivalActions {
    /// The actions; `None` if there are none.
    pub(crate) fn build(
        cors: Option<&CorsSpec>,
        redirect: Option<&RedirectSpec>,
    ) -> Result<Option<ArrivalActions>, InvalidSettings> {
        if cors.is_none() && redirect.is_none() {
            return Ok(None);
        }
        Ok(Some(ArrivalActions {
            cors: cors.map(CorsAction::new),
            redirect: redirect.map(RedirectAction::build).transpose()?,
        }))
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
        if let Some(response) = self.cors.as_ref().and_then(|cors| cors.arrive(ex)) {
            return Step::Respond(response);
        }
        match &self.redirect {
            Some(redirect) => Step::Respond(redirect.respond(ex)),
            None => Step::Continue,
        }
    }

    fn response_head(&self, ex: &mut ResponseHeadPhase<'_, '_>, head: &mut ResponseHead) {
        if let Some(cors) = &self.cors {
            cors.edit_response(ex, head);
        }
    }

    fn responds_always_in(&self) -> Option<PhaseSet> {
        self.redirect.is_some().then_some(PhaseSet::REWRITE)
    }

    fn dry_run(&self, phase: PhaseSet, ex: &mut Exchange<'_>) -> DryRunResult {
        DryRunResult::by_running(self, phase, ex)
    }
}
