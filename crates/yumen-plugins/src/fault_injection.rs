//! `fault-injection`: delays and aborts a share of the requests.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use yumen_config::schema::Invalid;
use yumen_plugin::{Configure, Exchange, Expr, Foreseen, Phases, Plugin, Response, Setup, Step};

use crate::text::{HeaderMap, Text, answerable, header_map_schema};

/// The settings.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(extend("minProperties" = 1))]
pub(crate) struct Config {
    /// Answer instead of the upstream.
    abort: Option<Abort>,
    /// Wait before going on.
    delay: Option<Delay>,
}

/// An answer instead of the upstream's.
#[derive(Debug, Deserialize, JsonSchema)]
struct Abort {
    /// Its status; above 999 is 999.
    #[schemars(range(min = 200))]
    http_status: u64,
    /// Its body; variables are filled in.
    #[schemars(length(min = 0))]
    body: Option<String>,
    /// Its fields; variables are filled in.
    #[serde(default)]
    #[schemars(schema_with = "header_map_schema")]
    headers: Option<HeaderMap>,
    /// The share of requests it happens to.
    #[schemars(range(min = 0, max = 100))]
    percentage: Option<u8>,
    /// Conditions, one of which has to hold.
    #[schemars(length(max = 20))]
    vars: Option<Vec<Vec<Value>>>,
}

/// A wait.
#[derive(Debug, Deserialize, JsonSchema)]
struct Delay {
    /// Seconds.
    #[schemars(range(min = 0))]
    duration: f64,
    /// The share of requests it happens to.
    #[schemars(range(min = 0, max = 100))]
    percentage: Option<u8>,
    /// Conditions, one of which has to hold.
    #[schemars(length(max = 20))]
    vars: Option<Vec<Vec<Value>>>,
}

/// Whom a fault hits.
struct Aim {
    percentage: Option<u8>,
    any_of: Option<Vec<Expr>>,
}

impl Aim {
    fn new(percentage: Option<u8>, vars: Option<Vec<Vec<Value>>>, path: &str) -> Result<Aim, Invalid> {
        let parse = |vars: Vec<Vec<Value>>| {
            let one = |var| Expr::parse(&Value::Array(var)).map_err(|message| Invalid::at(path, message));
            vars.into_iter().map(one).collect::<Result<Vec<_>, _>>()
        };
        Ok(Aim { percentage, any_of: vars.map(parse).transpose()? })
    }

    fn holds(&self, ex: &Exchange<'_>) -> bool {
        self.any_of.as_ref().is_none_or(|any_of| any_of.iter().any(|expr| expr.eval(ex)))
    }

    /// How many in a hundred requests like this one it hits.
    fn share(&self, ex: &Exchange<'_>) -> u8 {
        if self.holds(ex) { self.percentage.unwrap_or(100) } else { 0 }
    }

    fn draws(&self, ex: &Exchange<'_>) -> bool {
        self.percentage.is_none_or(|percentage| ex.host.random() % 100 < u64::from(percentage))
    }

    fn needs_body(&self) -> bool {
        self.any_of.as_ref().is_some_and(|any_of| any_of.iter().any(Expr::needs_body))
    }
}

struct Answer {
    aim: Aim,
    prepared: Response,
    fields: Vec<(String, Text)>,
    body: Option<Text>,
}

impl Answer {
    fn new(abort: Abort) -> Result<Answer, Invalid> {
        let aim = Aim::new(abort.percentage, abort.vars, "abort.vars")?;
        let mut prepared = Response::status(answerable(abort.http_status));
        let mut body = abort.body.as_deref().map(Text::parse);
        if body.as_ref().is_some_and(|text| text.as_plain().is_some()) {
            prepared = prepared.body(abort.body.unwrap_or_default());
            body = None;
        }
        let one = |(name, values): (String, Vec<String>)| (name, Text::parse(&values.concat()));
        let fields = abort.headers.unwrap_or_default().0.into_iter().map(one).collect();
        Ok(Answer { aim, prepared, fields, body })
    }

    fn render(&self, ex: &Exchange<'_>) -> Response {
        let mut response = self.prepared.clone();
        let rendered = |text: &Text| {
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

/// The most of a request body that conditions look into.
const BODY_BYTES_MAX: usize = 1 << 20;

/// Delays and aborts.
pub(crate) struct FaultInjection {
    delay: Option<(Aim, Duration)>,
    abort: Option<Answer>,
}

impl Configure for FaultInjection {
    const NAME: &'static str = "fault-injection";
    const PRIORITY: i32 = 11000;
    type Config = Config;

    fn build(config: Config, _: &Setup<'_>) -> Result<Self, Invalid> {
        let delay = config.delay.map(|delay| {
            let wait = Duration::try_from_secs_f64(delay.duration)
                .map_err(|error| Invalid::at("delay.duration", error.to_string()))?;
            Ok((Aim::new(delay.percentage, delay.vars, "delay.vars")?, wait))
        });
        Ok(FaultInjection { delay: delay.transpose()?, abort: config.abort.map(Answer::new).transpose()? })
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
    fn phases(&self) -> Phases {
        Phases::REWRITE
    }

    fn rewrite<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        if ex.lacks_body(BODY_BYTES_MAX) && self.needs_body() {
            return Step::NeedBody { bytes_max: BODY_BYTES_MAX };
        }
        let may_abort = self.abort.as_ref().is_some_and(|answer| answer.aim.holds(ex));
        match &self.delay {
            Some((aim, wait)) if aim.holds(ex) && aim.draws(ex) => Step::Wait(Box::pin(async move {
                ex.host.sleep(*wait).await;
                self.abort(ex, may_abort)
            })),
            _ => self.abort(ex, may_abort),
        }
    }

    fn foresee(&self, _phase: Phases, ex: &mut Exchange<'_>) -> Foreseen {
        if ex.lacks_body(BODY_BYTES_MAX) && self.needs_body() {
            return Foreseen::Unknown;
        }
        let mut says = Vec::new();
        if let Some((aim, wait)) = &self.delay
            && let share @ 1.. = aim.share(ex)
        {
            says.push(format!("delays {share} % of such requests by {} s", wait.as_secs_f64()));
        }
        if let Some(answer) = &self.abort {
            match answer.aim.share(ex) {
                100 => return Foreseen::Respond(answer.render(ex)),
                0 => {}
                share => {
                    says.push(format!("answers {share} % of such requests with {}", answer.prepared.status))
                }
            }
        }
        if says.is_empty() { Foreseen::Continue } else { Foreseen::Says(says.join("; ").into()) }
    }
}

#[cfg(test)]
mod tests;
