//! `multi-auth`: authenticates by the first of several authentication plugins that accepts a request.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use yumen_config::schema::InvalidSettings;
use yumen_plugin::{
    AccessRole, ConsumerIndex, DryRunResult, Exchange, LocalResponse, NestedPluginFault, PhaseSet, Plugin,
    PluginBuildContext, PluginFactory, ResponseHead, ResponseHeadPhase, Step,
};

use crate::auth::{CONSUMER_FIELDS, PassedWithoutCredential};

/// Settings of `multi-auth`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct MultiAuthSettings {
    /// Authentication plugins with their settings, in the order in which they are tried: `{"key-auth": {}}`.
    #[schemars(length(min = 2))]
    auth_plugins: Vec<Map<String, Value>>,
}

/// The compiled settings.
pub(crate) struct MultiAuth {
    plugins: Box<[Arc<dyn Plugin>]>,
}

impl PluginFactory for MultiAuth {
    const NAME: &'static str = "multi-auth";
    const PRIORITY: i32 = 2600;
    const ROLE: AccessRole = AccessRole::Authentication;
    type Config = MultiAuthSettings;

    fn build(config: MultiAuthSettings, setup: &PluginBuildContext<'_>) -> Result<Self, InvalidSettings> {
        let mut plugins = Vec::new();
        let Some(nested) = setup.nested else {
            return Ok(MultiAuth { plugins: plugins.into() });
        };
        for (at, entry) in config.auth_plugins.into_iter().enumerate() {
            for (name, settings) in entry {
                let path = format!("auth_plugins[{at}].{name}");
                warn_of_passing(&path, &name, &settings, setup);
                let message = match nested.build(&path, &name, settings) {
                    Ok(plugin) => {
                        plugins.push(plugin);
                        continue;
                    }
                    Err(NestedPluginFault::Unavailable) => {
                        // It would refuse every request, and so does its absence.
                        setup.warn(
                            &path,
                            "this version does not run the plugin: it accepts no request",
                            "remove it",
                        );
                        continue;
                    }
                    Err(NestedPluginFault::Unknown) => format!("{name} plugin did not found"),
                    Err(NestedPluginFault::NotAuthentication) => format!("{name} plugin is not supported"),
                    Err(NestedPluginFault::Settings(refused)) => {
                        let message = format!("plugin {name} check schema failed: {}", refused.message);
                        return Err(refused.map_message(|_| message).under(&path));
                    }
                };
                return Err(InvalidSettings::at(path, message));
            }
        }
        Ok(MultiAuth { plugins: plugins.into() })
    }
}

/// Warns about settings by which a plugin lets requests without a credential pass. Inside this plugin it refuses them.
fn warn_of_passing(path: &str, name: &str, settings: &Value, setup: &PluginBuildContext<'_>) {
    let passing =
        [("openid-connect", "unauth_action", json!("pass")), ("jwe-decrypt", "strict", json!(false))];
    for (plugin, setting, value) in passing {
        if name == plugin && settings.get(setting) == Some(&value) {
            let message =
                format!("{value} has no effect here: requests that no plugin authenticates are refused");
            setup.warn(&format!("{path}.{setting}"), message, "remove it");
        }
    }
}

/// The verdict about a request.
enum MultiAuthVerdict {
    Accepted,
    NeedBody { bytes_max: usize },
    Refused(LocalResponse),
}

impl MultiAuth {
    async fn authenticate(&self, ex: &mut Exchange<'_>) -> MultiAuthVerdict {
        let before = ex.request.clone();
        let mut answer = None;
        for nested in &self.plugins {
            let refusal = match verdict_of(&**nested, ex).await {
                MultiAuthVerdict::Refused(refusal) => refusal,
                MultiAuthVerdict::NeedBody { bytes_max } => {
                    ex.request = before;
                    return MultiAuthVerdict::NeedBody { bytes_max };
                }
                MultiAuthVerdict::Accepted => {
                    self.accept(nested, ex);
                    return MultiAuthVerdict::Accepted;
                }
            };
            // A plugin may have removed the credential that another one looks for.
            ex.request.clone_from(&before);
            if answers(&refusal) {
                answer.get_or_insert(refusal);
            }
        }
        MultiAuthVerdict::Refused(answer.unwrap_or_else(all_refused))
    }

    /// Removes the identity fields that the client itself has sent, and that another plugin than the one that has accepted
    /// the request would have set.
    fn accept(&self, by: &Arc<dyn Plugin>, ex: &mut Exchange<'_>) {
        let consumers = ex.consumers;
        let mut own = by.vouched_fields(consumers);
        own.extend(by.credential_field());
        let others = self.plugins.iter().filter(|plugin| !Arc::ptr_eq(plugin, by));
        let mut forged: Vec<&str> = others.flat_map(|plugin| plugin.vouched_fields(consumers)).collect();
        // The consumer's own were set when it was identified.
        if ex.consumer.is_some() { &mut own } else { &mut forged }.extend(CONSUMER_FIELDS);
        forged.retain(|name| !own.iter().any(|one| one.eq_ignore_ascii_case(name)));
        ex.request.fields.remove_all_equivalent(&forged);
    }
}

/// The verdict of one plugin.
async fn verdict_of(plugin: &dyn Plugin, ex: &mut Exchange<'_>) -> MultiAuthVerdict {
    forget_passes(ex);
    let verdict = settled(plugin, ex).await;
    match forget_passes(ex) {
        true => MultiAuthVerdict::Refused(all_refused()),
        false => verdict,
    }
}

/// The verdict of one plugin, which counts a pass without a credential as accepted.
async fn settled(plugin: &dyn Plugin, ex: &mut Exchange<'_>) -> MultiAuthVerdict {
    let mut step = plugin.rewrite(ex);
    loop {
        step = match step {
            Step::Continue => return MultiAuthVerdict::Accepted,
            Step::Respond(response) => return MultiAuthVerdict::Refused(response),
            Step::NeedBody { bytes_max } => return MultiAuthVerdict::NeedBody { bytes_max },
            Step::Wait(future) => future.await,
        };
    }
}

/// Removes the notes of plugins that let the request pass without a credential; whether there were any.
fn forget_passes(ex: &mut Exchange<'_>) -> bool {
    let mut found = false;
    while ex.take_extension::<PassedWithoutCredential>().is_some() {
        found = true;
    }
    found
}

/// Whether a response is the answer if no plugin accepts the request: the redirect to a login, a page of a login, the
/// failure of a provider. A refusal is not.
fn answers(response: &LocalResponse) -> bool {
    response.status < 400 || response.status >= 500
}

fn all_refused() -> LocalResponse {
    LocalResponse::message(401, "Authorization Failed")
}

impl Plugin for MultiAuth {
    fn phases(&self) -> PhaseSet {
        let has = |phase| self.plugins.iter().any(|nested| nested.phases().has(phase));
        match has(PhaseSet::RESPONSE_HEAD) {
            true => PhaseSet::REWRITE | PhaseSet::RESPONSE_HEAD,
            false => PhaseSet::REWRITE,
        }
    }

    fn rewrite<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        Step::Wait(Box::pin(async {
            match self.authenticate(ex).await {
                MultiAuthVerdict::Accepted => Step::Continue,
                MultiAuthVerdict::NeedBody { bytes_max } => Step::NeedBody { bytes_max },
                MultiAuthVerdict::Refused(response) => Step::Respond(response),
            }
        }))
    }

    fn response_head(&self, ex: &mut ResponseHeadPhase<'_, '_>, head: &mut ResponseHead) {
        // A plugin that has not accepted the request has left nothing for the response.
        for nested in self.plugins.iter().filter(|one| one.phases().has(PhaseSet::RESPONSE_HEAD)) {
            nested.response_head(ex, head);
        }
    }

    fn vouched_fields<'s>(&'s self, consumers: &'s ConsumerIndex) -> Vec<&'s str> {
        self.plugins.iter().flat_map(|nested| nested.vouched_fields(consumers)).collect()
    }

    fn dry_run(&self, phase: PhaseSet, ex: &mut Exchange<'_>) -> DryRunResult {
        if phase != PhaseSet::REWRITE {
            return DryRunResult::Continue;
        }
        let before = ex.request.clone();
        let mut answer = None;
        for nested in &self.plugins {
            forget_passes(ex);
            let refusal = match nested.dry_run(phase, ex) {
                DryRunResult::Respond(refusal) | DryRunResult::Refuse(refusal, _) => refusal,
                _ if forget_passes(ex) => all_refused(),
                accepted => {
                    self.accept(nested, ex);
                    return accepted;
                }
            };
            ex.request.clone_from(&before);
            if answers(&refusal) {
                answer.get_or_insert(refusal);
            }
        }
        DryRunResult::Respond(answer.unwrap_or_else(all_refused))
    }
}

#[cfg(test)]
mod tests;
