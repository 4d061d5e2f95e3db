//! `acl`: admits or refuses requests by labels of the consumer or of a user of an identity provider.

use std::collections::BTreeMap;

use regex::bytes::Regex;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::pattern::linear;
use yumen_plugin::{
    AccessRole, Consumer, DryRunResult, Exchange, ExternalUser, LocalResponse, PatternOptions, PhaseSet,
    Plugin, PluginBuildContext, PluginFactory, Step,
};

use crate::text::final_status;

#[cfg(test)]
mod tests;

/// Values by label.
type LabelLists = BTreeMap<String, LabelValues>;

/// The values of one label.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub(crate) struct LabelValues(#[schemars(length(min = 1))] Vec<String>);

/// The form of the label in the claims of an external user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(crate) enum LabelParser {
    /// Text that a separator divides.
    SegmentedText,
    /// Text with a JSON list.
    Json,
    /// A list.
    Table,
}

/// Settings of `acl`.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(extend(
    "anyOf" = [{"required": ["allow_labels"]}, {"required": ["deny_labels"]}],
    "allOf" = [{
        "if": {
            "properties": {"external_user_label_field_parser": {"const": "segmented_text"}},
            "required": ["external_user_label_field_parser"],
        },
        "then": {"required": ["external_user_label_field_separator"]},
    }],
))]
pub(crate) struct AclSettings {
    /// Labels of which one must have one of its values. A label value is a text, texts with `,` between them, or a JSON list.
    #[schemars(length(min = 1), extend("minProperties" = 1))]
    allow_labels: Option<LabelLists>,
    /// Labels of which none may have one of its values. They count before `allow_labels`.
    #[schemars(length(min = 1), extend("minProperties" = 1))]
    deny_labels: Option<LabelLists>,
    /// Status of the refusal.
    #[serde(default = "rejected_code")]
    #[schemars(range(min = 200))]
    rejected_code: u64,
    /// Message in the body of the refusal.
    rejected_msg: Option<String>,
    /// The claim of an external user that has the label: a name, or a path such as `$.realm_access.roles`.
    #[serde(default = "external_user_label_field")]
    #[schemars(length(min = 1))]
    external_user_label_field: String,
    /// The label for which the claim stands; that of `external_user_label_field` if absent.
    #[schemars(length(min = 1))]
    external_user_label_field_key: Option<String>,
    /// The form of the claim. Without it, a list has the values, and a text is read as the label of a consumer.
    external_user_label_field_parser: Option<LabelParser>,
    /// Regular expression that divides the text of the parser `segmented_text`.
    #[schemars(length(min = 1))]
    external_user_label_field_separator: Option<String>,
}

fn rejected_code() -> u64 {
    403
}

fn external_user_label_field() -> String {
    "groups".to_owned()
}

/// The compiled settings.
#[derive(Debug)]
pub(crate) struct AclPlugin {
    allow: LabelLists,
    deny: LabelLists,
    rejected: LocalResponse,
    claim: ClaimLabel,
}

/// The label in the claims of external users.
#[derive(Debug)]
struct ClaimLabel {
    key: String,
    path: Box<[String]>,
    parser: Option<LabelParser>,
    separator: Option<Regex>,
}

/// The values of labels that belong to a client.
type ClientLabels<'l> = Vec<(&'l str, Vec<String>)>;

impl PluginFactory for AclPlugin {
    const NAME: &'static str = "acl";
    const PRIORITY: i32 = 2410;
    const ROLE: AccessRole = AccessRole::Guard;
    type Config = AclSettings;

    fn build(config: AclSettings, _: &PluginBuildContext<'_>) -> Result<Self, InvalidSettings> {
        const SEPARATOR: &str = "external_user_label_field_separator";
        let separator = config.external_user_label_field_separator.as_deref();
        if config.external_user_label_field_parser == Some(LabelParser::SegmentedText) && separator.is_none()
        {
            return Err(InvalidSettings::at(SEPARATOR, "is required by the parser segmented_text"));
        }
        let compile = |pattern: &str| {
            linear(pattern, PatternOptions::default()).map_err(|reason| {
                InvalidSettings::at(SEPARATOR, format!("\"{pattern}\" is no pattern: {reason}"))
            })
        };
        let claim = ClaimLabel {
            path: claim_path(&config.external_user_label_field)?,
            key: config.external_user_label_field_key.unwrap_or(config.external_user_label_field),
            parser: config.external_user_label_field_parser,
            separator: separator.map(compile).transpose()?,
        };
        let message = config.rejected_msg.as_deref().unwrap_or("The consumer is forbidden.");
        Ok(AclPlugin {
            allow: config.allow_labels.unwrap_or_default(),
            deny: config.deny_labels.unwrap_or_default(),
            rejected: LocalResponse::message(final_status(config.rejected_code), message),
            claim,
        })
    }
}

/// The members of a path. Wildcards, filters and indexes of JSONPath select several values, and are refused.
fn claim_path(text: &str) -> Result<Box<[String]>, InvalidSettings> {
    let members = text.strip_prefix("$.").unwrap_or(text);
    let is_plain = |member: &str| !member.is_empty() && !member.contains(['*', '[', ']', '?', '@', '$', '(']);
    match members.split('.').all(is_plain) {
        true => Ok(members.split('.').map(str::to_owned).collect()),
        false => Err(InvalidSettings::at(
            "external_user_label_field",
            format!("\"{text}\" is no path of members, such as $.realm_access.roles"),
        )),
    }
}

impl Plugin for AclPlugin {
    fn phases(&self) -> PhaseSet {
        PhaseSet::ACCESS
    }

    fn access<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        let labels = match (ex.consumer, ex.external_user.as_deref()) {
            (Some(consumer), _) => labels_of(consumer),
            (None, Some(user)) => self.claim.labels(user),
            (None, None) => {
                return Step::Respond(LocalResponse::message(401, "Missing authentication."));
            }
        };
        // A label whose value cannot be read might be a denied one.
        let admits = labels.is_some_and(|labels| {
            !matches(&self.deny, &labels) && (self.allow.is_empty() || matches(&self.allow, &labels))
        });
        if admits { Step::Continue } else { Step::Respond(self.rejected.clone()) }
    }

    fn dry_run(&self, phase: PhaseSet, ex: &mut Exchange<'_>) -> DryRunResult {
        DryRunResult::by_running(self, phase, ex)
    }
}

fn matches(lists: &LabelLists, labels: &ClientLabels<'_>) -> bool {
    labels.iter().any(|(key, values)| {
        lists.get(*key).is_some_and(|list| list.0.iter().any(|wanted| values.contains(wanted)))
    })
}

/// The labels of a consumer; `None` if one cannot be read.
fn labels_of(consumer: &Consumer) -> Option<ClientLabels<'_>> {
    consumer.labels.iter().map(|(key, text)| Some((&**key, label_values(text)?))).collect()
}

/// The values in the text of a label; `None` for a malformed list.
fn label_values(text: &str) -> Option<Vec<String>> {
    if text.starts_with('[') {
        return serde_json::from_str::<Vec<String>>(text).ok();
    }
    Some(text.split(',').map(|value| value.trim().to_owned()).collect())
}

impl ClaimLabel {
    /// The label of a user; `None` if the claim cannot be read. A user without the claim has no label.
    fn labels<'l>(&'l self, user: &ExternalUser) -> Option<ClientLabels<'l>> {
        let claim = self.path.iter().try_fold(&*user.claims, |value, member| value.get(member));
        match claim {
            None | Some(Value::Null) => Some(Vec::new()),
            Some(claim) => Some(vec![(&*self.key, self.values(claim)?)]),
        }
    }

    fn values(&self, claim: &Value) -> Option<Vec<String>> {
        match (self.parser, claim) {
            (None | Some(LabelParser::Table), Value::Array(list)) => {
                list.iter().map(|value| value.as_str().map(str::to_owned)).collect()
            }
            (None, Value::String(text)) => label_values(text),
            (Some(LabelParser::Json), Value::String(text)) => serde_json::from_str(text).ok(),
            (Some(LabelParser::SegmentedText), Value::String(text)) => {
                let parts = self.separator.as_ref()?.split(text.as_bytes());
                parts.map(|part| std::str::from_utf8(part).ok().map(str::to_owned)).collect()
            }
            _ => None,
        }
    }
}
