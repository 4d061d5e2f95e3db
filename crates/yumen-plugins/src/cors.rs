//! `cors`: adds the response fields of the Fetch standard that allow cross-origin reads, and responds to
//! preflight requests.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::{
    BacktrackBudget, DryRunResult, Exchange, KnownField, LocalResponse, Method, PhaseSet, Plugin,
    PluginBuildContext, PluginFactory, RegexPattern, ResponseHead, ResponseHeadPhase, Step,
};

use crate::pattern;

/// Settings of `cors`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct CorsSettings {
    /// Origins that may read responses: a list, `*` for all without credentials, `**` for all.
    #[serde(default = "star")]
    #[schemars(regex(pattern = r"^(\*|\*\*|null|\w+://[^,]+(,\w+://[^,]+)*)$"))]
    allow_origins: String,
    /// Methods for these origins: a list, `*` for all without credentials, `**` for all.
    #[serde(default = "star")]
    allow_methods: String,
    /// Request fields for these origins: a list, `*` for all without credentials, `**` for all that the
    /// preflight requests.
    #[serde(default = "star")]
    allow_headers: String,
    /// Response fields that these origins may read.
    expose_headers: Option<String>,
    /// Time for which browsers may cache the preflight response, in seconds.
    #[serde(default = "five")]
    max_age: i64,
    /// Whether requests may carry credentials; excludes `*` in all other settings.
    #[serde(default)]
    allow_credential: bool,
    /// Patterns of origins that may read responses; replaces `allow_origins`.
    #[schemars(length(min = 1), inner(length(min = 1, max = 4096)), extend("uniqueItems" = true))]
    allow_origins_by_regex: Option<Vec<String>>,
    /// Names of origin lists in the plugin metadata.
    #[schemars(length(min = 1), inner(length(min = 1, max = 4096)), extend("uniqueItems" = true))]
    allow_origins_by_metadata: Option<Vec<String>>,
    /// Origins that may read resource timings.
    #[schemars(regex(pattern = r"^(\*|\*\*|null|\w+://[^,]+(,\w+://[^,]+)*)$"))]
    timing_allow_origins: Option<String>,
    /// Patterns of origins that may read resource timings.
    #[schemars(length(min = 1), inner(length(min = 1, max = 4096)), extend("uniqueItems" = true))]
    timing_allow_origins_by_regex: Option<Vec<String>>,
    /// Requests with the method `OPTIONS` that the plugin responds to: `options` all, `preflight` those with
    /// `Origin` and `Access-Control-Request-Method`, `none`. With `none`, responses to preflight requests keep
    /// the fields of the upstream. Beyond APISIX.
    #[serde(default)]
    answer: AnsweredOptions,
}

/// Requests that get a local response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, serde::Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum AnsweredOptions {
    #[default]
    Options,
    Preflight,
    None,
}

fn star() -> String {
    "*".to_owned()
}

fn five() -> i64 {
    5
}

/// Plugin metadata of `cors`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct CorsMetadata {
    /// Lists of origins by name.
    #[serde(default)]
    #[schemars(extend("additionalProperties" = {
        "type": "string", "pattern": r"^(\*|\*\*|null|\w+://[^,]+(,\w+://[^,]+)*)$"
    }))]
    allow_origins: BTreeMap<String, String>,
}

/// A rule over origins.
enum OriginRule {
    /// Every origin; the response repeats it.
    Asking,
    /// This text for every request, even one of another origin.
    One(Box<[u8]>),
    Many(Box<[Box<[u8]>]>),
    Matching(Box<[RegexPattern]>),
}

impl OriginRule {
    fn list(text: &str) -> OriginRule {
        match text {
            "**" => OriginRule::Asking,
            list if list.contains(',') => OriginRule::Many(
                list.split(',').filter(|one| !one.is_empty()).map(|one| one.as_bytes().into()).collect(),
            ),
            one => OriginRule::One(one.as_bytes().into()),
        }
    }

    fn matching(patterns: &[String], path: &str) -> Result<OriginRule, InvalidSettings> {
        Ok(OriginRule::Matching(pattern::any_of(patterns, "", path)?))
    }

    /// The value of `Access-Control-Allow-Origin`. It may name another origin than that of the request.
    fn allowed<'a>(&'a self, origin: Option<&'a [u8]>, budget: &BacktrackBudget) -> Option<&'a [u8]> {
        match self {
            OriginRule::Asking => Some(origin.unwrap_or(b"*")),
            OriginRule::One(one) => Some(one),
            OriginRule::Many(many) => {
                origin.filter(|requesting| many.iter().any(|one| **one == **requesting))
            }
            // A pattern that exceeds the backtracking budget does not match.
            OriginRule::Matching(patterns) => {
                origin.filter(|requesting| pattern::any_matches(patterns, requesting, budget) == Ok(true))
            }
        }
    }

    /// [`OriginRule::allowed`] if the value admits the origin of the request.
    fn admits<'a>(&'a self, origin: Option<&'a [u8]>, budget: &BacktrackBudget) -> Option<&'a [u8]> {
        self.allowed(origin, budget).filter(|allowed| *allowed == b"*" || origin == Some(*allowed))
    }
}

/// The compiled settings.
pub(crate) struct Cors {
    /// `None` if only the lists of the metadata count.
    origins: Option<OriginRule>,
    named: Vec<OriginRule>,
    varies: bool,
    /// `None` if the response repeats the requested fields.
    headers: Option<String>,
    methods: String,
    expose: Option<String>,
    max_age: String,
    credentials: bool,
    timing: Option<OriginRule>,
    answer: AnsweredOptions,
}

/// The origin of the request as received, because later plugins may change the field. Its presence in the
/// exchange also shows that a `cors` plugin controls the response.
pub(crate) struct RequestOrigin(Option<Box<[u8]>>);

/// Mark of a preflight request whose response is the upstream's.
struct ForwardedPreflight;

impl PluginFactory for Cors {
    const NAME: &'static str = "cors";
    const PRIORITY: i32 = 4000;
    type Config = CorsSettings;

    fn build(config: CorsSettings, setup: &PluginBuildContext<'_>) -> Result<Self, InvalidSettings> {
        let expose = config.expose_headers.filter(|list| !list.is_empty());
        let stars = [&config.allow_origins, &config.allow_methods, &config.allow_headers];
        let more = [&expose, &config.timing_allow_origins];
        let any_star = stars.into_iter().chain(more.into_iter().flatten()).any(|text| text == "*");
        // With credentials, an asterisk in these fields is no wildcard (Fetch, CORS protocol and
        // credentials).
        if config.allow_credential && any_star {
            let message = "you can not set '*' for other option when 'allow_credential' is true";
            return Err(InvalidSettings::new(message));
        }
        let is_star = config.allow_origins == "*";
        let by_regex = config.allow_origins_by_regex.as_deref();
        let origins = match by_regex {
            Some(patterns) => OriginRule::matching(patterns, "allow_origins_by_regex")?,
            None => OriginRule::list(&config.allow_origins),
        };
        let timing = match (&config.timing_allow_origins_by_regex, &config.timing_allow_origins) {
            (Some(patterns), _) => Some(OriginRule::matching(patterns, "timing_allow_origins_by_regex")?),
            (None, list) => list.as_deref().map(OriginRule::list),
        };
        // The default `*` does not apply next to named lists; explicit origins do.
        let counts = config.allow_origins_by_metadata.is_none() || !is_star;
        // With credentials, an asterisk is no wildcard, so `**` lists the methods instead.
        let methods = match config.allow_methods.as_str() {
            "**" => "GET,POST,PUT,DELETE,PATCH,HEAD,OPTIONS,CONNECT,TRACE".to_owned(),
            _ => config.allow_methods,
        };
        Ok(Cors {
            origins: counts.then_some(origins),
            named: named(config.allow_origins_by_metadata.as_deref().unwrap_or(&[]), setup)?,
            // The response depends on the origin unless every origin gets the same value.
            varies: !is_star || by_regex.is_some() || config.allow_origins_by_metadata.is_some(),
            headers: Some(config.allow_headers).filter(|list| list != "**"),
            methods,
            expose,
            max_age: config.max_age.to_string(),
            credentials: config.allow_credential,
            timing,
            answer: config.answer,
        })
    }
}

/// The lists of the metadata with these names. A name without a list admits no origin.
fn named(names: &[String], setup: &PluginBuildContext<'_>) -> Result<Vec<OriginRule>, InvalidSettings> {
    let metadata = match setup.metadata {
        Some(value) => CorsMetadata::deserialize(value).map_err(InvalidSettings::from_serde)?,
        None => CorsMetadata::default(),
    };
    Ok(names
        .iter()
        .filter_map(|name| metadata.allow_origins.get(name))
        .map(|list| OriginRule::list(list))
        .collect())
}

impl Cors {
    fn allowed<'a>(&'a self, origin: Option<&'a [u8]>, budget: &BacktrackBudget) -> Option<&'a [u8]> {
        // A named list repeats the origin of the request even if it contains `*`.
        let by_name = || self.named.iter().find_map(|list| list.admits(origin, budget)).and(origin);
        by_name().or_else(|| self.origins.as_ref()?.admits(origin, budget))
    }

    fn add_fields(&self, ex: &Exchange<'_>, head: &mut ResponseHead, allowed: &[u8]) {
        let fields = &mut head.fields;
        fields.set("Access-Control-Allow-Origin", allowed);
        fields.set("Access-Control-Allow-Methods", self.methods.as_bytes());
        fields.set("Access-Control-Max-Age", self.max_age.as_bytes());
        if let Some(expose) = &self.expose {
            fields.set("Access-Control-Expose-Headers", expose.as_bytes());
        }
        let requested = || ex.request.fields.get("Access-Control-Request-Headers");
        match self.headers.as_ref().map(String::as_bytes).or_else(requested) {
            Some(headers) => fields.set("Access-Control-Allow-Headers", headers),
            None => drop(fields.remove("Access-Control-Allow-Headers")),
        }
        if self.credentials {
            fields.set("Access-Control-Allow-Credentials", b"true");
        }
    }
}

/// Whether an OPTIONS request is a preflight request (Fetch, CORS-preflight request).
fn is_preflight(ex: &Exchange<'_>) -> bool {
    let has_origin = ex.request.fields.known(KnownField::Origin).is_some_and(|origin| !origin.is_empty());
    has_origin && ex.request.fields.has("Access-Control-Request-Method")
}

impl Plugin for Cors {
    fn phases(&self) -> PhaseSet {
        PhaseSet::REWRITE | PhaseSet::RESPONSE_HEAD
    }

    fn rewrite<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        let origin = ex.request.fields.known(KnownField::Origin).map(Box::from);
        ex.leave(RequestOrigin(origin));
        if ex.request.method() != Method::Options {
            return Step::Continue;
        }
        match self.answer {
            // As in APISIX, every OPTIONS request counts as a preflight request.
            AnsweredOptions::Options => Step::Respond(LocalResponse::status(200)),
            AnsweredOptions::Preflight if is_preflight(ex) => Step::Respond(LocalResponse::status(200)),
            AnsweredOptions::None if is_preflight(ex) => {
                ex.leave(ForwardedPreflight);
                Step::Continue
            }
            AnsweredOptions::Preflight | AnsweredOptions::None => Step::Continue,
        }
    }

    fn response_head(&self, ex: &mut ResponseHeadPhase<'_, '_>, head: &mut ResponseHead) {
        if self.answer == AnsweredOptions::None && ex.note::<ForwardedPreflight>().is_some() {
            return;
        }
        if ex.note::<RequestOrigin>().is_none() {
            // A local response of an earlier plugin skipped `rewrite`. The field is unchanged then.
            let origin = ex.request.fields.known(KnownField::Origin).map(Box::from);
            ex.leave(RequestOrigin(origin));
        }
        let origin = ex.note::<RequestOrigin>().and_then(|requesting| requesting.0.as_deref());
        // Also if the origin is not admitted: caches must not reuse that response either (Fetch, CORS
        // protocol and HTTP caches).
        if self.varies {
            head.fields.add("Vary", b"Origin");
        }
        if let Some(allowed) = self.allowed(origin, ex.budget()) {
            self.add_fields(ex, head, allowed);
        }
        if let Some(allowed) = self.timing.as_ref().and_then(|timing| timing.admits(origin, ex.budget())) {
            head.fields.set("Timing-Allow-Origin", allowed);
        }
    }

    fn dry_run(&self, phase: PhaseSet, ex: &mut Exchange<'_>) -> DryRunResult {
        DryRunResult::by_running(self, phase, ex)
    }
}

#[cfg(test)]
mod tests;
