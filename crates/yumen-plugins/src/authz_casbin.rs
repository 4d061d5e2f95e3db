//! `authz-casbin`: authorizes requests by a model and a policy of Casbin.
//!
//! An evaluator of the documented grammar: definitions, roles, effects, operators and pattern functions become a tree
//! when the configuration is compiled. Other grammar is refused when it is written.

mod expression;
mod model;
mod patterns;
mod policy;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::{
    AccessRole, DryRunResult, Exchange, LocalResponse, PhaseSet, Plugin, PluginBuildContext, PluginFactory,
    Step,
};

use crate::text::is_field_name;
use policy::{CasbinEnforcer, CasbinPart};

#[cfg(test)]
mod tests;

/// The user of requests without the field.
const ANONYMOUS: &str = "anonymous";

/// Settings of `authz-casbin`. Model and policy come from the settings, from files, or from the metadata.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct AuthzCasbinSettings {
    /// Path of a file with the model. The node reads it when the object with these settings is compiled.
    model_path: Option<String>,
    /// Path of a file with the policy. The node reads it when the object with these settings is compiled.
    policy_path: Option<String>,
    /// The model.
    model: Option<String>,
    /// The policy, in CSV.
    policy: Option<String>,
    /// The request field that has the name of the user; requests without it are those of `anonymous`.
    username: String,
}

/// Metadata of `authz-casbin`.
#[derive(Debug, Deserialize, JsonSchema)]
#[allow(dead_code, reason = "the schema is read, and the members by name")]
pub(crate) struct AuthzCasbinMetadata {
    /// The model of all uses without their own.
    model: String,
    /// The policy of all uses without their own, in CSV.
    policy: String,
}

/// The compiled settings.
#[derive(Debug)]
pub(crate) struct AuthzCasbin {
    /// `None` if the settings are only validated and their texts are elsewhere.
    enforcer: Option<CasbinEnforcer>,
    username: String,
}

/// A model and a policy, with the paths of the settings that have them.
struct CasbinTexts {
    model: (&'static str, String),
    policy: (&'static str, String),
}

impl AuthzCasbinSettings {
    /// The texts; `None` if the settings are only validated and the texts are elsewhere.
    fn texts(&self, setup: &PluginBuildContext<'_>) -> Result<Option<CasbinTexts>, InvalidSettings> {
        let pair = |path: &'static str, model: &str, policy_path: &'static str, policy: &str| CasbinTexts {
            model: (path, model.to_owned()),
            policy: (policy_path, policy.to_owned()),
        };
        match (&self.model_path, &self.policy_path, &self.model, &self.policy) {
            (None, None, Some(model), Some(policy)) => Ok(Some(pair("model", model, "policy", policy))),
            (Some(model_path), Some(policy_path), None, None) => {
                let Some(objects) = setup.objects else { return Ok(None) };
                let read = |setting: &str, path: &str| {
                    objects.read_file(path).map_err(|why| InvalidSettings::at(setting, why))
                };
                let model = read("model_path", model_path)?;
                let policy = read("policy_path", policy_path)?;
                Ok(Some(pair("model_path", &model, "policy_path", &policy)))
            }
            (None, None, None, None) => {
                let text = |name| setup.metadata?.get(name).and_then(Value::as_str);
                match (text("model"), text("policy"), setup.objects) {
                    (Some(model), Some(policy), _) => Ok(Some(pair("username", model, "username", policy))),
                    // The metadata is not known while settings are validated.
                    (_, _, None) => Ok(None),
                    _ => Err(InvalidSettings::at(
                        "model",
                        "neither the settings nor the metadata have a model and a policy",
                    )),
                }
            }
            _ => Err(InvalidSettings::at(
                "model",
                "either model and policy, or model_path and policy_path, or none of them are needed",
            )),
        }
    }
}

impl PluginFactory for AuthzCasbin {
    const NAME: &'static str = "authz-casbin";
    const PRIORITY: i32 = 2560;
    const ROLE: AccessRole = AccessRole::Guard;
    type Config = AuthzCasbinSettings;

    fn build(config: AuthzCasbinSettings, setup: &PluginBuildContext<'_>) -> Result<Self, InvalidSettings> {
        if !is_field_name(&config.username) {
            return Err(InvalidSettings::at(
                "username",
                format!("\"{}\" is not a field name", config.username),
            ));
        }
        let texts = config.texts(setup)?;
        let compile = |texts: CasbinTexts| {
            CasbinEnforcer::compile(&texts.model.1, &texts.policy.1).map_err(|(part, why)| match part {
                CasbinPart::Model => InvalidSettings::at(texts.model.0, why),
                CasbinPart::Policy => InvalidSettings::at(texts.policy.0, why),
            })
        };
        Ok(AuthzCasbin { enforcer: texts.map(compile).transpose()?, username: config.username })
    }
}

impl AuthzCasbin {
    /// Whether the policy allows the request. Whatever cannot be compared is not allowed.
    fn allows(&self, ex: &Exchange<'_>) -> Option<bool> {
        let mut users = ex.request.fields.all(&self.username);
        let user = match (users.next(), users.next()) {
            (None, _) => ANONYMOUS,
            (Some(user), None) => std::str::from_utf8(user).ok()?,
            // The upstream could read the other one.
            (Some(_), Some(_)) => return None,
        };
        let path = std::str::from_utf8(ex.request.path()).ok()?;
        let method = std::str::from_utf8(ex.request.method_name()).ok()?;
        Some(self.enforcer.as_ref()?.allows([user, path, method]))
    }
}

impl Plugin for AuthzCasbin {
    fn phases(&self) -> PhaseSet {
        PhaseSet::REWRITE
    }

    fn rewrite<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        match self.allows(ex) {
            Some(true) => Step::Continue,
            _ => Step::Respond(LocalResponse::message(403, "Access Denied")),
        }
    }

    fn dry_run(&self, phase: PhaseSet, ex: &mut Exchange<'_>) -> DryRunResult {
        DryRunResult::by_running(self, phase, ex)
    }
}
