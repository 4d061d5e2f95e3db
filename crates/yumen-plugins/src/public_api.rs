//! `public-api`: exposes an API of a plugin on a route.

use schemars::JsonSchema;
use serde::Deserialize;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::{
    AccessRole, DryRunResult, Exchange, LocalResponse, PhaseSet, Plugin, PluginBuildContext, PluginFactory,
    Step, Var,
};

use crate::wolf_rbac::api::{WOLF_APIS, WolfApi};

#[cfg(test)]
mod tests;

/// Largest body of a request to an API in bytes.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// APIs of APISIX that this gateway serves elsewhere or not at all, with the remedy.
const ELSEWHERE: [(&str, &str); 2] = [
    ("/apisix/prometheus/", "the status listener serves metrics under this path: remove the route"),
    ("/apisix/status", "the status listener serves the state of the node: remove the route"),
];

/// Settings of `public-api`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct PublicApiSettings {
    /// Path of the API, such as `/apisix/plugin/wolf-rbac/login`. Without it, the path of the request.
    uri: Option<String>,
}

/// The compiled settings.
pub(crate) struct PublicApi {
    path: Option<String>,
    request_path: Var,
}

impl PluginFactory for PublicApi {
    const NAME: &'static str = "public-api";
    const PRIORITY: i32 = 501;
    // Without it, the requests would reach an upstream.
    const ROLE: AccessRole = AccessRole::Guard;
    type Config = PublicApiSettings;

    fn build(config: PublicApiSettings, setup: &PluginBuildContext<'_>) -> Result<Self, InvalidSettings> {
        let unknown = config.uri.as_ref().filter(|uri| !WOLF_APIS.iter().any(|(_, path, _)| path == uri));
        if let Some(unknown) = unknown {
            let elsewhere = ELSEWHERE.iter().find(|(begin, _)| unknown.starts_with(begin));
            let remedy =
                elsewhere.map_or("write the path of an API, or remove the route", |(_, remedy)| remedy);
            let message = format!("no plugin has an API at {unknown}: requests are answered 404");
            setup.warn("uri", message, remedy);
        }
        Ok(PublicApi { path: config.uri, request_path: Var::parse("uri") })
    }
}

impl PublicApi {
    /// The API for a request.
    fn api_of(&self, ex: &Exchange<'_>) -> Option<WolfApi> {
        let requested = self.request_path.get(ex).unwrap_or_default();
        let path = self.path.as_ref().map_or(&*requested, |path| path.as_bytes());
        let method = ex.request.client_method();
        let api = WOLF_APIS.iter().find(|(verb, at, _)| *verb == method && at.as_bytes() == path)?;
        Some(api.2)
    }
}

async fn wait<'a>(api: WolfApi, ex: &Exchange<'_>) -> Step<'a> {
    Step::Respond(api.answer(ex).await)
}

impl Plugin for PublicApi {
    fn phases(&self) -> PhaseSet {
        PhaseSet::ACCESS
    }

    fn responds_always_in(&self) -> Option<PhaseSet> {
        Some(PhaseSet::ACCESS)
    }

    fn access<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        match self.api_of(ex) {
            None => Step::Respond(LocalResponse::status(404)),
            Some(api) if api.reads_body() && ex.lacks_body(BODY_BYTES_MAX) => {
                Step::NeedBody { bytes_max: BODY_BYTES_MAX }
            }
            Some(api) => Step::Wait(Box::pin(wait(api, ex))),
        }
    }

    fn dry_run(&self, _: PhaseSet, ex: &mut Exchange<'_>) -> DryRunResult {
        match self.api_of(ex) {
            None => DryRunResult::Respond(LocalResponse::status(404)),
            Some(_) => {
                DryRunResult::Note("answered by an API of wolf-rbac, which asks the wolf server".into())
            }
        }
    }
}
