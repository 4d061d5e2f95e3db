//! `attach-consumer-label`: sends labels of the consumer to the upstream in request fields.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::{
    AccessRole, DryRunResult, Exchange, PhaseSet, Plugin, PluginBuildContext, PluginFactory,
    UpstreamRequestPhase,
};

use crate::text::is_field_name;

#[cfg(test)]
mod tests;

/// Settings of `attach-consumer-label`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct AttachConsumerLabelSettings {
    /// `$` and the name of a label, by field. Without the label or a consumer the field is removed, also if the client sent it.
    #[schemars(extend("minProperties" = 1))]
    headers: BTreeMap<String, LabelReference>,
}

/// `$` and the name of a label.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub(crate) struct LabelReference(#[schemars(regex(pattern = r"^\$.*"))] String);

/// The compiled settings.
#[derive(Debug)]
pub(crate) struct AttachConsumerLabel {
    /// Label by field.
    fields: Box<[(Box<str>, Box<str>)]>,
}

impl PluginFactory for AttachConsumerLabel {
    const NAME: &'static str = "attach-consumer-label";
    const PRIORITY: i32 = 2399;
    // The upstream trusts the fields.
    const ROLE: AccessRole = AccessRole::Guard;
    type Config = AttachConsumerLabelSettings;

    fn build(
        config: AttachConsumerLabelSettings,
        _: &PluginBuildContext<'_>,
    ) -> Result<Self, InvalidSettings> {
        let field = |(name, label): (String, LabelReference)| {
            let at = format!("headers.{name}");
            if !is_field_name(&name) {
                return Err(InvalidSettings::at(at, "is no field name"));
            }
            match label.0.strip_prefix('$') {
                Some(label) if !label.is_empty() => Ok((name.into(), label.into())),
                _ => Err(InvalidSettings::at(at, "must be $ and the name of a label")),
            }
        };
        Ok(AttachConsumerLabel { fields: config.headers.into_iter().map(field).collect::<Result<_, _>>()? })
    }
}

impl Plugin for AttachConsumerLabel {
    fn phases(&self) -> PhaseSet {
        PhaseSet::UPSTREAM_REQUEST
    }

    fn dry_run(&self, phase: PhaseSet, ex: &mut Exchange<'_>) -> DryRunResult {
        DryRunResult::by_running(self, phase, ex)
    }

    fn upstream_request(&self, ex: &mut UpstreamRequestPhase<'_, '_>) {
        let consumer = ex.consumer;
        for (name, label) in &self.fields {
            // Names that differ in `_` for `-` are one variable to many upstreams.
            ex.request_mut().fields.remove_equivalent(name);
            let labels = consumer.into_iter().flat_map(|consumer| &consumer.labels);
            if let Some((_, value)) = labels.into_iter().find(|(key, _)| key == label) {
                ex.request_mut().fields.set(name, value.as_bytes());
            }
        }
    }
}
