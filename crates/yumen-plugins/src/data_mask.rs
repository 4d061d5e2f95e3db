//! `data-mask`: hides parts of a request from loggers and the access log.
//!
//! Runs ahead of the log phase, when the exchange has ended: the upstream receives the request unchanged.

mod json_path;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use yumen_config::schema::InvalidSettings;
use yumen_http::uri::query_arguments;
use yumen_plugin::{
    AccessRole, DryRunResult, Exchange, LogPreparation, PhaseSet, Plugin, PluginBuildContext, PluginFactory,
};

use crate::pattern::{self, LinearSubstitution, MatchReplacement};
use crate::query;
use json_path::JsonPath;

/// Replaces a body that cannot be masked.
const HIDDEN: &[u8] = b"******";

/// Settings of `data-mask`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct DataMaskSettings {
    /// Parts of the request and their treatment, in order.
    request: Option<Vec<MaskRule>>,
    /// Maximum size in bytes of a body that is masked; a longer one is hidden whole.
    #[serde(default = "max_body_size")]
    #[schemars(range(min = 1))]
    max_body_size: usize,
    /// Maximum number of arguments of a form that is masked; a longer form is hidden whole.
    #[serde(default = "max_req_post_args")]
    max_req_post_args: usize,
}

/// One part of the request and its treatment.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(extend("allOf" = [
    {"if": {"properties": {"type": {"const": "body"}}}, "then": {"required": ["body_format"]}},
    {"if": {"properties": {"action": {"const": "regex"}}}, "then": {"required": ["regex", "value"]}},
    {"if": {"properties": {"action": {"const": "replace"}}}, "then": {"required": ["value"]}}
]))]
struct MaskRule {
    /// The place: `query`, `header` or `body`.
    r#type: MaskPlace,
    /// Form of the body: `json` or `urlencoded`.
    body_format: Option<MaskedBodyForm>,
    /// Name of the argument, field or form member; a JSONPath such as `$.users[*].token` in JSON.
    name: String,
    /// `remove`, `replace`, or `regex` to replace the matches of a pattern.
    action: MaskActionName,
    /// Pattern of `regex`.
    regex: Option<String>,
    /// Replacement; `$1` is the first group of the pattern.
    value: Option<String>,
}

/// The place of a masked value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum MaskPlace {
    Query,
    Header,
    Body,
}

/// Form of a masked body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum MaskedBodyForm {
    Json,
    Urlencoded,
}

/// Treatment of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum MaskActionName {
    Regex,
    Replace,
    Remove,
}

fn max_body_size() -> usize {
    1_048_576
}

fn max_req_post_args() -> usize {
    100
}

/// A compiled rule.
struct MaskTarget {
    place: MaskedPart,
    name: String,
    action: MaskAction,
}

enum MaskedPart {
    Query,
    Field,
    Json(JsonPath),
    Form,
}

enum MaskAction {
    Remove,
    Replace(String),
    Regex(Box<LinearSubstitution>),
}

impl MaskAction {
    /// The masked text; `None` removes it.
    fn apply(&self, text: &str) -> Option<String> {
        match self {
            MaskAction::Remove => None,
            MaskAction::Replace(value) => Some(value.clone()),
            MaskAction::Regex(substitution) => {
                let masked = substitution.replaced(text.as_bytes(), usize::MAX);
                Some(String::from_utf8_lossy(masked.as_deref().unwrap_or(text.as_bytes())).into_owned())
            }
        }
    }
}

/// The plugin.
pub(crate) struct DataMask {
    targets: Vec<MaskTarget>,
    body_bytes_max: usize,
    form_arguments_max: usize,
}

impl PluginFactory for DataMask {
    const NAME: &'static str = "data-mask";
    const PRIORITY: i32 = 1500;
    const ROLE: AccessRole = AccessRole::Guard;
    type Config = DataMaskSettings;

    fn build(config: DataMaskSettings, setup: &PluginBuildContext<'_>) -> Result<Self, InvalidSettings> {
        let mut targets = Vec::new();
        for (index, rule) in config.request.unwrap_or_default().into_iter().enumerate() {
            targets.push(compile(rule, &format!("request[{index}]"))?);
        }
        if targets.is_empty() {
            setup.warn("request", "no part of the request is masked", "add rules, or remove the plugin");
        }
        Ok(DataMask {
            targets,
            body_bytes_max: config.max_body_size,
            form_arguments_max: config.max_req_post_args,
        })
    }
}

fn compile(rule: MaskRule, path: &str) -> Result<MaskTarget, InvalidSettings> {
    let MaskRule { r#type, body_format, name, action, regex, value } = rule;
    let missing = |member: &str, when: &str| {
        InvalidSettings::at(format!("{path}.{member}"), format!("required if {when}"))
    };
    let place = match (r#type, body_format) {
        (MaskPlace::Query, _) => MaskedPart::Query,
        (MaskPlace::Header, _) => MaskedPart::Field,
        (MaskPlace::Body, Some(MaskedBodyForm::Urlencoded)) => MaskedPart::Form,
        (MaskPlace::Body, Some(MaskedBodyForm::Json)) => {
            let parsed = JsonPath::parse(&name);
            MaskedPart::Json(parsed.map_err(|why| InvalidSettings::at(format!("{path}.name"), why))?)
        }
        (MaskPlace::Body, None) => return Err(missing("body_format", "type is body")),
    };
    let action = match action {
        MaskActionName::Remove => MaskAction::Remove,
        MaskActionName::Replace => {
            MaskAction::Replace(value.ok_or_else(|| missing("value", "action is replace"))?)
        }
        MaskActionName::Regex => {
            let regex = regex.ok_or_else(|| missing("regex", "action is regex"))?;
            let value = value.ok_or_else(|| missing("value", "action is regex"))?;
            let pattern = pattern::linear_with_options(&regex, "jo", &format!("{path}.regex"))?;
            let replacement = MatchReplacement::parse(&value, &format!("{path}.value"))?;
            MaskAction::Regex(Box::new(LinearSubstitution::new(pattern, replacement)))
        }
    };
    Ok(MaskTarget { place, name, action })
}

impl DataMask {
    fn masks_body(&self) -> bool {
        self.targets.iter().any(|target| matches!(target.place, MaskedPart::Json(_) | MaskedPart::Form))
    }

    fn mask_query(&self, ex: &mut LogPreparation<'_, '_>) {
        let Some(query) = ex.request.query() else { return };
        let targets = || self.targets.iter().filter(|target| matches!(target.place, MaskedPart::Query));
        if let Some(masked) = mask_pairs(query, targets) {
            ex.request_mut().replace_logged_query(&masked);
        }
    }

    fn mask_fields(&self, ex: &mut LogPreparation<'_, '_>) {
        for target in self.targets.iter().filter(|target| matches!(target.place, MaskedPart::Field)) {
            let values: Vec<Vec<u8>> = ex.request.fields.all(&target.name).map(<[u8]>::to_vec).collect();
            if values.is_empty() {
                continue;
            }
            let masked: Vec<String> = values
                .iter()
                .filter_map(|value| target.action.apply(&String::from_utf8_lossy(value)))
                .collect();
            let fields = &mut ex.request_mut().fields;
            fields.remove(&target.name);
            masked.iter().for_each(|value| fields.add(&target.name, value.as_bytes()));
        }
    }

    /// The masked request body; `None` if nothing in it changes.
    fn mask_body(&self, ex: &LogPreparation<'_, '_>, body: &[u8]) -> Option<Vec<u8>> {
        if body.is_empty() {
            return None;
        }
        if body.len() > self.body_bytes_max {
            return Some(HIDDEN.to_vec());
        }
        let has_json = self.targets.iter().any(|target| matches!(target.place, MaskedPart::Json(_)));
        let has_form = self.targets.iter().any(|target| matches!(target.place, MaskedPart::Form));
        let is_form = ex.request.fields.get("content-type").is_some_and(|value| {
            value.to_ascii_lowercase().starts_with(b"application/x-www-form-urlencoded")
        });
        match is_form {
            true if has_form => self.mask_form(body),
            false if has_json => self.mask_json(body),
            // The rules of the plugin are for the other form.
            _ => None,
        }
    }

    fn mask_form(&self, body: &[u8]) -> Option<Vec<u8>> {
        if body.split(|byte| *byte == b'&').count() > self.form_arguments_max && self.form_arguments_max > 0 {
            return Some(HIDDEN.to_vec());
        }
        let targets = || self.targets.iter().filter(|target| matches!(target.place, MaskedPart::Form));
        mask_pairs(body, targets)
    }

    fn mask_json(&self, body: &[u8]) -> Option<Vec<u8>> {
        // A body that is no JSON, or that the tap has cut off, may have the value anywhere.
        let Ok(mut document) = serde_json::from_slice::<Value>(body) else { return Some(HIDDEN.to_vec()) };
        let mut is_changed = false;
        for target in &self.targets {
            if let MaskedPart::Json(path) = &target.place {
                is_changed |= path.edit(&mut document, &mut |value| {
                    let text = match value {
                        Value::String(text) => text.clone(),
                        other => other.to_string(),
                    };
                    target.action.apply(&text).map(Value::String)
                });
            }
        }
        is_changed.then(|| document.to_string().into_bytes())
    }
}

/// The pairs of a query or form after the rules; `None` if nothing changes.
fn mask_pairs<'t, I: Iterator<Item = &'t MaskTarget>>(
    text: &[u8],
    targets: impl Fn() -> I,
) -> Option<Vec<u8>> {
    let mut is_changed = false;
    let mut out = Vec::with_capacity(text.len());
    for (name, value) in query_arguments(text) {
        let decoded = query::decode(name);
        let mut masked = None;
        let mut is_removed = false;
        for target in targets().filter(|target| target.name.as_bytes() == decoded.as_ref()) {
            let current = masked.take().unwrap_or_else(|| query::decode(value).into_owned());
            match target.action.apply(&String::from_utf8_lossy(&current)) {
                Some(text) => masked = Some(text.into_bytes()),
                None => is_removed = true,
            }
        }
        is_changed |= is_removed || masked.is_some();
        if is_removed {
            continue;
        }
        if !out.is_empty() {
            out.push(b'&');
        }
        out.extend_from_slice(name);
        let encoded = masked.map(|text| {
            percent_encoding::percent_encode(&text, percent_encoding::NON_ALPHANUMERIC).to_string()
        });
        match encoded {
            Some(text) => {
                out.push(b'=');
                // A mask of asterisks stays readable.
                out.extend_from_slice(text.replace("%2A", "*").as_bytes());
            }
            None if value.is_empty() => {}
            None => {
                out.push(b'=');
                out.extend_from_slice(value);
            }
        }
    }
    is_changed.then_some(out)
}

impl Plugin for DataMask {
    fn phases(&self) -> PhaseSet {
        PhaseSet::PREPARE_LOG
    }

    fn prepare_log(&self, ex: &mut LogPreparation<'_, '_>) {
        self.mask_query(ex);
        self.mask_fields(ex);
        if self.masks_body() {
            let body = ex.body.buffered.as_deref().or_else(|| ex.tapped_request()).map(<[u8]>::to_vec);
            if let Some(masked) = body.and_then(|body| self.mask_body(ex, &body)) {
                ex.replace_request_body(masked);
            }
        }
    }

    fn dry_run(&self, _: PhaseSet, _: &mut Exchange<'_>) -> DryRunResult {
        DryRunResult::Continue
    }
}

#[cfg(test)]
mod tests;
