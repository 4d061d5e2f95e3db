//! The instance that guards a route after all plugins: address lists, passwords, an authorization service.
//!
//! With `satisfy: any`, one admission suffices; the refusal of the others is kept until the last has refused.

use yumen_config::InvalidSettings;
use yumen_config::resource::{AccessSpec, ExternalAuthSpec, RouteActionsSpec, SatisfySpec};
use yumen_plugin::plugin::LocalFuture;
use yumen_plugin::{
    DryRunResult, Exchange, LocalResponse, OffloadRefused, PhaseSet, Plugin, ResponseHead, ResponseHeadPhase,
    Step,
};

use crate::ActionUpstreams;
use crate::address_lists::AddressLists;
use crate::auth_request::AuthRequest;
use crate::basic_auth::{BasicAuthFile, CredentialCheck};
use crate::external_auth::ExternalAuth;

/// Guards of a route.
pub(crate) struct AccessGuard {
    addresses: Option<AddressLists>,
    passwords: Option<BasicAuthFile>,
    service: Option<Box<dyn Plugin>>,
    /// Request fields that only the service sets.
    of_service: Box<[Box<str>]>,
    /// Whether one admission suffices.
    is_any: bool,
}

impl AccessGuard {
    /// The guards; `None` if there are none.
    pub(crate) fn build(
        spec: &RouteActionsSpec,
        upstreams: &dyn ActionUpstreams,
    ) -> Result<Option<AccessGuard>, InvalidSettings> {
        let none = AccessSpec::default();
        let access = spec.access.as_ref().unwrap_or(&none);
        let passwords = access.basic_auth_file.as_ref();
        let service: Option<Box<dyn Plugin>> = match &spec.external_auth {
            None => None,
            Some(written) => match &written.nginx {
                Some(nginx) => Some(Box::new(AuthRequest::build(written, nginx, upstreams))),
                None => Some(Box::new(ExternalAuth::build(written, upstreams)?)),
            },
        };
        let guard = AccessGuard {
            addresses: AddressLists::build(access).map_err(|invalid| invalid.under("access"))?,
            passwords: passwords.map(|written| BasicAuthFile::build(written, upstreams)).transpose()?,
            service,
            of_service: spec.external_auth.as_ref().map(fields_of_service).unwrap_or_default(),
            is_any: access.satisfy == SatisfySpec::Any,
        };
        let is_empty = guard.addresses.is_none() && guard.passwords.is_none() && guard.service.is_none();
        Ok((!is_empty).then_some(guard))
    }

    /// Admits a request without the service. The fields that it would have set are not the client's to choose.
    fn admit_unasked<'a>(&self, ex: &mut Exchange<'_>) -> Step<'a> {
        for name in &self.of_service {
            ex.request.fields.remove_equivalent(name);
        }
        Step::Continue
    }

    /// Continues after the address lists; `refused` is their refusal, of which one admission makes good.
    fn after_addresses<'a>(&'a self, ex: &'a mut Exchange<'_>, refused: Option<LocalResponse>) -> Step<'a> {
        let Some(passwords) = &self.passwords else { return self.after_passwords(ex, refused) };
        match passwords.check(ex) {
            CredentialCheck::Ready(result) => self.judge(ex, result, refused),
            CredentialCheck::Pending(result) => Step::Wait(Box::pin(self.wait(ex, result, refused))),
        }
    }

    async fn wait<'a>(
        &'a self,
        ex: &'a mut Exchange<'_>,
        result: LocalFuture<'static, Result<bool, OffloadRefused>>,
        refused: Option<LocalResponse>,
    ) -> Step<'a> {
        let result = result.await;
        self.judge(ex, result, refused)
    }

    /// Continues after the check of a password.
    fn judge<'a>(
        &'a self,
        ex: &'a mut Exchange<'_>,
        result: Result<bool, OffloadRefused>,
        refused: Option<LocalResponse>,
    ) -> Step<'a> {
        let passwords_refuse = || self.passwords.as_ref().map(BasicAuthFile::refusal);
        match result {
            Err(busy) => Step::Respond(LocalResponse::error_msg(503, &busy.to_string())),
            Ok(true) if self.is_any => self.admit_unasked(ex),
            Ok(true) => self.after_passwords(ex, refused),
            Ok(false) if self.is_any => {
                let refusal = passwords_refuse();
                self.after_passwords(ex, refusal)
            }
            Ok(false) => passwords_refuse().map_or(Step::Continue, Step::Respond),
        }
    }

    /// Asks the authorization service, if there is one; else a refusal counts.
    fn after_passwords<'a>(&'a self, ex: &'a mut Exchange<'_>, refused: Option<LocalResponse>) -> Step<'a> {
        let Some(service) = &self.service else {
            return refused.map_or(Step::Continue, Step::Respond);
        };
        let step = service.access(ex);
        match (step, refused) {
            (Step::Respond(of_service), Some(refused)) => Step::Respond(stronger(refused, of_service)),
            (Step::Wait(future), Some(refused)) => Step::Wait(Box::pin(async move {
                match future.await {
                    Step::Respond(of_service) => Step::Respond(stronger(refused, of_service)),
                    step => step,
                }
            })),
            (step, _) => step,
        }
    }
}

fn fields_of_service(written: &ExternalAuthSpec) -> Box<[Box<str>]> {
    let passed = written.allowed_response_headers.iter().flatten();
    let composed = written.nginx.iter().flat_map(|nginx| nginx.answer_fields.iter().flatten());
    let names = passed.map(String::as_str).chain(composed.map(|(name, _)| name.as_str()));
    names.map(Box::from).collect()
}

/// The refusal that the client gets: one that asks for credentials, so that the client can try again.
fn stronger(refused: LocalResponse, of_service: LocalResponse) -> LocalResponse {
    if of_service.status == 403 && refused.status == 401 { refused } else { of_service }
}

impl Plugin for AccessGuard {
    fn phases(&self) -> PhaseSet {
        self.service.as_ref().map_or(PhaseSet::ACCESS, |service| service.phases() | PhaseSet::ACCESS)
    }

    fn access<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        let Some(addresses) = &self.addresses else { return self.after_addresses(ex, None) };
        match (addresses.admit(ex), self.is_any) {
            (true, true) => self.admit_unasked(ex),
            (true, false) => self.after_addresses(ex, None),
            (false, true) => self.after_addresses(ex, Some(address_refusal())),
            (false, false) => Step::Respond(address_refusal()),
        }
    }

    fn response_head(&self, ex: &mut ResponseHeadPhase<'_, '_>, head: &mut ResponseHead) {
        if let Some(service) = &self.service {
            service.response_head(ex, head);
        }
    }

    fn dry_run(&self, phase: PhaseSet, ex: &mut Exchange<'_>) -> DryRunResult {
        let Some(service) = self.service.as_ref() else { return DryRunResult::by_running(self, phase, ex) };
        let is_admitted = self.addresses.as_ref().map(|addresses| addresses.admit(ex));
        let has_password = self.passwords.as_ref().map(|passwords| match passwords.check(ex) {
            CredentialCheck::Ready(result) => result == Ok(true),
            // A host of a dry run computes at once.
            CredentialCheck::Pending(_) => false,
        });
        match (self.is_any, is_admitted, has_password) {
            (true, Some(true), _) | (true, _, Some(true)) => {
                self.admit_unasked(ex);
                DryRunResult::Continue
            }
            (false, Some(false), _) => DryRunResult::Respond(address_refusal()),
            (false, _, Some(false)) => self
                .passwords
                .as_ref()
                .map_or(DryRunResult::Continue, |of| DryRunResult::Respond(of.refusal())),
            _ => service.dry_run(phase, ex),
        }
    }
}

fn address_refusal() -> LocalResponse {
    LocalResponse::message(403, "your IP address is not allowed")
}

#[cfg(test)]
mod tests;
