//! `fault-injection`: delays and aborts a share of the requests.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::{
    ConditionExpr, DryRunResult, Exchange, LocalResponse, PhaseSet, Plugin, PluginBuildContext,
    PluginFactory, Step,
};

use crate::text::{HeaderEntries, TextTemplate, final_status, header_map_schema, warn_of_message_fields};

/// Settings of `fault-injection`.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(extend("minProperties" = 1))]
pub(crate) struct FaultInjectionSettings {
    /// Local response instead of a request to the upstream.
    abort: Option<AbortSettings>,
    /// Delay before the exchange continues.
    delay: Option<DelaySettings>,
}

/// The local response of an abort.
#[derive(Debug, Deserialize, JsonSchema)]
struct AbortSettings {
    /// Status of the response; a number above 999 counts as 999.
    #[schemars(range(min = 200))]
    http_status: u64,
    /// Body of the response; may contain variables.
    #[schemars(length(min = 0))]
    body: Option<String>,
    /// Fields of the response; values may contain variables.
    #[serde(default)]
    #[schemars(schema_with = "header_map_schema")]
    headers: Option<HeaderEntries>,
    /// Share of the requests to abort, in percent.
    #[schemars(range(min = 0, max = 100))]
    percentage: Option<u8>,
    /// Conditions, combined by OR; without them every request matches.
    #[schemars(length(max = 20))]
    vars: Option<Vec<Vec<Value>>>,
}

/// The delay of a request.
#[derive(Debug, Deserialize, JsonSchema)]
struct DelaySettings {
    /// Delay in seconds.
    #[schemars(range(min = 0))]
    duration: f64,
    /// Share of the requests to delay, in percent.
    #[schemars(range(min = 0, max = 100))]
    percentage: Option<u8>,
    /// Conditions, combined by OR; without them every request matches.
    #[schemars(length(max = 20))]
    vars: Option<Vec<Vec<Value>>>,
}

/// The requests that a fault applies to.
struct FaultSelector {
    percentage: Option<u8>,
    any_of: Option<Vec<ConditionExpr>>,
}

impl FaultSelector {
    fn new(
        percentage: Option<u8>,
        vars: Option<Vec<Vec<Value>>>,
        path: &str,
    ) -> Result<FaultSelector, InvalidSettings> {
        let parse = |vars: Vec<Vec<Value>>| {
            let one = |var| {
                ConditionExpr::parse(&Value::Array(var)).map_err(|message| InvalidSettings::at(path, message))
            };
            vars.into_iter().map(one).collect::<Result<Vec<_>, _>>()
        };
        Ok(FaultSelector { percentage, any_of: vars.map(parse).transpose()? })
    }

    fn holds(&self, ex: &Exchange<'_>) -> bool {
        self.any_of.as_ref().is_none_or(|any_of| any_of.iter().any(|expr| expr.eval(ex)))
    }

    /// Share of the requests like this one that the fault applies to, in percent.
    fn share(&self, ex: &Exchange<'_>) -> u8 {
        if self.holds(ex) { self.percentage.unwrap_or(100) } else { 0 }
    }

    fn draws(&self, ex: &Exchange<'_>) -> bool {
        // The bias of the remainder is negligible with 64 random bits.
        self.percentage.is_none_or(|percentage| ex.host.random() % 100 < u64::from(percentage))
    }

    fn needs_body(&self) -> bool {
        self.any_of.as_ref().is_some_and(|any_of| any_of.iter().any(ConditionExpr::needs_body))
    }
}

struct PreparedAbort {
    aim: FaultSelector,
    prepared: LocalResponse,
    fields: Vec<(String, TextTemplate)>,
    body: Option<TextTemplate>,
}

impl PreparedAbort {
    fn new(abort: AbortSettings) -> Result<PreparedAbort, InvalidSettings> {
        let aim = FaultSelector::new(abort.percentage, abort.vars, "abort.vars")?;
        let mut prepared = LocalResponse::status(final_status(abort.http_status));
        let mut body = abort.body.as_deref().map(TextTemplate::parse);
        // A body without variables is shared by all responses.
        if body.as_ref().is_some_and(|text| text.as_plain().is_some()) {
            prepared = prepared.body(abort.body.unwrap_or_default());
            body = None;
        }
        let one = |(name, values): (String, Vec<String>)| (name, TextTemplate::parse(&values.concat()));
        let fields = abort.headers.unwrap_or_default().0.into_iter().map(one).collect();
        Ok(PreparedAbort { aim, prepared, fields, body })
    }

    fn render(&self, ex: &Exchange<'_>) -> LocalResponse {
        let mut response = self.prepared.clone();
        let rendered = |text: &TextTemplate| {
            let mut out = Vec::new();
            text.render(ex, &mut out);
            bytes::Bytes::from(out)
        };
        for (name, value) in &self.fields {
            response.fields_mut().add(name, &rendered(value));
        }
        if let Some(body) = &self.body {
            response.body = rendered(body);
        }
        response
    }
}

/// Longest request body that conditions can refer to.
const BODY_BYTES_MAX: usize = 1 << 20;

/// The compiled settings.
pub(crate) struct FaultInjection {
    delay: Option<(FaultSelector, Duration)>,
    abort: Option<PreparedAbort>,
}

impl PluginFactory for FaultInjection {
    const NAME: &'static str = "fault-injection";
    const PRIORITY: i32 = 11000;
    type Config = FaultInjectionSettings;

    fn build(
        config: FaultInjectionSettings,
        setup: &PluginBuildContext<'_>,
    ) -> Result<Self, InvalidSettings> {
        let headers = config.abort.iter().filter_map(|abort| abort.headers.as_ref()).flat_map(|all| &all.0);
        warn_of_message_fields(setup, "abort.headers", false, headers.map(|(name, _)| name));
        let delay = config.delay.map(|delay| {
            let wait = Duration::try_from_secs_f64(delay.duration)
                .map_err(|error| InvalidSettings::at("delay.duration", error.to_string()))?;
            Ok((FaultSelector::new(delay.percentage, delay.vars, "delay.vars")?, wait))
        });
        Ok(FaultInjection {
            delay: delay.transpose()?,
            abort: config.abort.map(PreparedAbort::new).transpose()?,
        })
    }
}

impl FaultInjection {
    fn abort<'a>(&'a self, ex: &Exchange<'_>, may: bool) -> Step<'a> {
        match &self.abort {
            Some(answer) if answer.aim.draws(ex) && may => Step::Respond(answer.render(ex)),
            _ => Step::Continue,
        }
    }

    fn needs_body(&self) -> bool {
        self.delay.as_ref().is_some_and(|(aim, _)| aim.needs_body())
            || self.abort.as_ref().is_some_and(|answer| answer.aim.needs_body())
    }
}

impl Plugin for FaultInjection {
    fn phases(&self) -> PhaseSet {
        PhaseSet::REWRITE
    }

    fn rewrite<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        if ex.lacks_body(BODY_BYTES_MAX) && self.needs_body() {
            return Step::NeedBody { bytes_max: BODY_BYTES_MAX };
        }
        // As in APISIX, both conditions are evaluated before the delay.
        let may_abort = self.abort.as_ref().is_some_and(|answer| answer.aim.holds(ex));
        match &self.delay {
            Some((aim, wait)) if aim.holds(ex) && aim.draws(ex) => Step::Wait(Box::pin(async move {
                ex.host.sleep(*wait).await;
                self.abort(ex, may_abort)
            })),
            _ => self.abort(ex, may_abort),
        }
    }

    fn responds_always_in(&self) -> Option<PhaseSet> {
        let aim = &self.abort.as_ref()?.aim;
        let is_all = aim.any_of.is_none() && aim.percentage.is_none_or(|percentage| percentage == 100);
        is_all.then_some(PhaseSet::REWRITE)
    }

    fn dry_run(&self, _phase: PhaseSet, ex: &mut Exchange<'_>) -> DryRunResult {
        if ex.lacks_body(BODY_BYTES_MAX) && self.needs_body() {
            return DryRunResult::Unknown;
        }
        let mut effects = Vec::new();
        if let Some((aim, wait)) = &self.delay
            && let share @ 1.. = aim.share(ex)
        {
            effects.push(format!("delays {share} % of such requests by {} s", wait.as_secs_f64()));
        }
        if let Some(answer) = &self.abort {
            match answer.aim.share(ex) {
                100 => return DryRunResult::Respond(answer.render(ex)),
                0 => {}
                share => effects
                    .push(format!("answers {share} % of such requests with {}", answer.prepared.status)),
            }
        }
        if effects.is_empty() {
            DryRunResult::Continue
        } else {
            DryRunResult::Note(effects.join("; ").into())
        }
    }
}

#[cfg(test)]
mod tests;
