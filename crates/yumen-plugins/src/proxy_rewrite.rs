//! `proxy-rewrite`: changes the request for the upstream: target, host, method and fields.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use yumen_config::schema::InvalidSettings;
use yumen_http::uri::has_dot_segment;
use yumen_plugin::{
    DryRunResult, Exchange, LocalResponse, OmittedForwarding, PhaseSet, Plugin, PluginBuildContext,
    PluginFactory, Step,
};

use crate::edits::{PresenceEditSettings, PresenceEdits, appended_schema};
use crate::pattern::{self, MatchReplacement, PatternSubstitution};
use crate::target_builder::{LiteralEncoding, TargetBuilder};
use crate::text::{
    HeaderEdits, HeaderEntries, HeaderOperations, MatchGroups, TextTemplate, header_map_schema,
    is_field_name, warn_of_message_fields,
};

/// Settings of `proxy-rewrite`.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(extend("minProperties" = 1))]
pub(crate) struct ProxyRewriteSettings {
    /// New target; may contain variables, whose values are encoded for their position in path or query. The
    /// query of the request is appended unless `$request_uri` or `$args` contains it. `${$}` is a dollar
    /// sign. Takes precedence over `regex_uri`.
    #[schemars(length(min = 1, max = 4096), regex(pattern = r"^\/.*"))]
    uri: Option<String>,
    /// New method.
    #[schemars(extend("enum" = ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "LOCK", "TRACE",
        "UNLOCK", "PROPFIND", "MOVE", "COPY", "MKCOL"]))]
    method: Option<String>,
    /// Patterns over the decoded path, each followed by the replacement for its match; the first pattern that
    /// matches counts. Groups keep their encoding in a path and are encoded as values in a query.
    #[schemars(length(min = 2))]
    regex_uri: Option<Vec<String>>,
    /// New host, with a port if needed.
    #[schemars(regex(pattern = r"^[0-9a-zA-Z-._]+(:\d{1,5})?$"))]
    host: Option<String>,
    /// Fields to add, set and remove; or a map of fields to set. `Host` can be set, unless `host` is. The gateway adds
    /// no `X-Real-IP`, `X-Forwarded-Proto`, `X-Forwarded-Host` or `X-Forwarded-Port` that is set or removed here, and
    /// always appends the address of the client to `X-Forwarded-For`.
    #[serde(default)]
    #[schemars(schema_with = "headers_schema")]
    headers: Option<HeaderEdits<HeaderEntries>>,
    /// Edits of fields by presence, after `headers`. Templates see the request before the edits. Beyond APISIX.
    field_edits: Option<PresenceEditSettings>,
    /// Edits of the query arguments of the new target by presence. Beyond APISIX.
    query_edits: Option<PresenceEditSettings>,
    /// Rewrite the target as received. Unsafe: rules that check the normalized path can be bypassed, and a
    /// credential that `hide_credentials` removed from the query goes upstream.
    #[serde(default)]
    use_real_request_uri_unsafe: bool,
}

fn headers_schema(generator: &mut SchemaGenerator) -> Schema {
    let many = appended_schema(generator);
    json_schema!({"oneOf": [
        {
            "type": "object",
            "minProperties": 1,
            "additionalProperties": false,
            "properties": {
                "add": many,
                "set": many,
                "remove": {"type": "array", "minItems": 1, "items": {"type": "string", "pattern": "^[^:]+$"}},
            },
        },
        header_map_schema(generator),
    ]})
}

enum RewriteTarget {
    Uri(TextTemplate),
    Patterns(Box<[PatternSubstitution]>),
    AsItCame,
}

enum RewriteHost {
    Keep,
    /// `host` of the settings.
    Fixed(Box<[u8]>),
    /// `Host` among the fields to set.
    Field(TextTemplate),
}

/// Client text formed a dot segment in a rewritten path. The upstream would resolve it to a path outside the
/// template.
#[derive(Debug)]
struct DotSegmentInRewrite;

/// The compiled settings.
pub(crate) struct ProxyRewrite {
    target: RewriteTarget,
    raw: bool,
    method: Option<String>,
    host: RewriteHost,
    add: Vec<(String, TextTemplate)>,
    set: Vec<(String, Vec<TextTemplate>)>,
    remove: Vec<String>,
    /// The forwarding fields among `remove`.
    omitted: OmittedForwarding,
    field_edits: Option<PresenceEdits>,
    query_edits: Option<PresenceEdits>,
}

impl PluginFactory for ProxyRewrite {
    const NAME: &'static str = "proxy-rewrite";
    const PRIORITY: i32 = 1008;
    type Config = ProxyRewriteSettings;

    fn build(config: ProxyRewriteSettings, setup: &PluginBuildContext<'_>) -> Result<Self, InvalidSettings> {
        let mut operations = config.headers.map(HeaderEdits::into_operations).unwrap_or_default();
        let names = operations.add.0.iter().chain(&operations.set.0).map(|(name, _)| name);
        if !names.chain(&operations.remove).all(|name| is_field_name(name)) {
            return Err(InvalidSettings::at("headers", "invalid field character in header"));
        }
        let host = rewrite_host(config.host, &mut operations, setup);
        let names = operations.add.0.iter().chain(&operations.set.0).map(|(name, _)| name);
        warn_of_message_fields(setup, "headers", true, names.chain(&operations.remove));
        // Patterns are validated even if `uri` takes precedence.
        let patterns = patterns(config.regex_uri.as_deref().unwrap_or(&[]))?;
        if config.uri.is_some() && !patterns.is_empty() {
            setup.warn("regex_uri", "\"regex_uri\" has no effect beside \"uri\"", "remove one of the two");
        }
        let target = match config.uri {
            Some(uri) => RewriteTarget::Uri(TextTemplate::parse(&uri)),
            None if !patterns.is_empty() => RewriteTarget::Patterns(patterns),
            None => RewriteTarget::AsItCame,
        };
        let texts =
            |values: Vec<String>| values.iter().map(|value| TextTemplate::parse(value)).collect::<Vec<_>>();
        let each = |(name, values): (String, Vec<String>)| {
            texts(values).into_iter().map(move |value| (name.clone(), value))
        };
        let field_edits =
            config.field_edits.map(|edits| PresenceEdits::new(edits, "field_edits", is_field_name));
        let query_edits =
            config.query_edits.map(|edits| PresenceEdits::new(edits, "query_edits", |name| !name.is_empty()));
        Ok(ProxyRewrite {
            target,
            raw: config.use_real_request_uri_unsafe,
            method: config.method,
            host,
            add: operations.add.0.into_iter().flat_map(each).collect(),
            set: operations.set.0.into_iter().map(|(name, values)| (name, texts(values))).collect(),
            omitted: {
                let mut omitted = OmittedForwarding::default();
                operations.remove.iter().for_each(|name| omitted.omit(name));
                omitted
            },
            remove: operations.remove,
            field_edits: field_edits.transpose()?,
            query_edits: query_edits.transpose()?,
        })
    }
}

/// Takes `Host` out of the operations: it is part of the target, and not one of the other fields.
fn rewrite_host(
    fixed: Option<String>,
    operations: &mut HeaderOperations<HeaderEntries>,
    setup: &PluginBuildContext<'_>,
) -> RewriteHost {
    let is_host = |name: &str| name.eq_ignore_ascii_case("host");
    let warn = |message: &str, remedy: &str| setup.warn("headers", message, remedy);
    let count = operations.remove.len() + operations.add.0.len();
    operations.remove.retain(|name| !is_host(name));
    operations.add.0.retain(|(name, _)| !is_host(name));
    if operations.remove.len() + operations.add.0.len() < count {
        // A request has exactly one `Host` (RFC 9112 §3.2).
        warn("Host can be set only: adding or removing it has no effect", "write it in headers.set");
    }
    let set = operations.set.0.iter().position(|(name, _)| is_host(name));
    let set = set.and_then(|at| operations.set.0.remove(at).1.into_iter().next());
    match (fixed, set) {
        (Some(host), set) => {
            if set.is_some() {
                warn("Host has no effect beside the setting host", "remove one of the two");
            }
            RewriteHost::Fixed(host.into_bytes().into())
        }
        (None, Some(text)) => RewriteHost::Field(TextTemplate::parse(&text)),
        (None, None) => RewriteHost::Keep,
    }
}

/// Whether a text can be sent as `Host` (RFC 9110 §7.2).
fn is_authority(text: &[u8]) -> bool {
    let is_allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(byte);
    !text.is_empty() && text.iter().all(is_allowed)
}

fn patterns(list: &[String]) -> Result<Box<[PatternSubstitution]>, InvalidSettings> {
    let (pairs, rest) = list.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(InvalidSettings::new("The length of regex_uri should be an even number"));
    }
    let one = |[pattern, template]: &[String; 2]| {
        let both = pattern::compile(pattern, "regex_uri")
            .and_then(|regex| Ok((regex, MatchReplacement::parse(template, "regex_uri")?)));
        match both {
            Ok((regex, by)) => Ok(PatternSubstitution::new(regex, by)),
            Err(error) => {
                let message = format!("invalid regex_uri({pattern}, {template}): {}", error.message);
                Err(InvalidSettings::new(message))
            }
        }
    };
    pairs.iter().map(one).collect()
}

fn position(text: &[u8], byte: u8) -> Option<usize> {
    text.iter().position(|at| *at == byte)
}

impl ProxyRewrite {
    fn has_fields(&self) -> bool {
        !(self.add.is_empty() && self.set.is_empty())
            || matches!(self.host, RewriteHost::Field(_))
            || self.field_edits.is_some()
            || self.query_edits.is_some()
    }

    /// The new target; `None` if it does not change.
    fn safe_target(
        &self,
        ex: &Exchange<'_>,
        groups: &mut Option<MatchGroups>,
    ) -> Result<Option<Vec<u8>>, DotSegmentInRewrite> {
        let mut target = TargetBuilder::new(LiteralEncoding::Path);
        match &self.target {
            RewriteTarget::Uri(uri) => uri.fill_target(ex, &mut target),
            RewriteTarget::Patterns(patterns) => {
                let captures = patterns
                    .iter()
                    .find_map(|one| ex.decided(one.first_in_path(&ex.request, ex.budget(), &mut target)));
                let Some(captures) = captures else { return Ok(None) };
                // Only fields refer to the groups, so they are not copied otherwise.
                *groups = self.has_fields().then(|| MatchGroups::of(&captures));
            }
            RewriteTarget::AsItCame => return Ok(None),
        }
        target.add_query(ex.request.query().unwrap_or_default());
        self.without_dot_segment(target.finish()).map(Some)
    }

    /// The target, or an error if client text may have formed a dot segment in its path.
    fn without_dot_segment(&self, target: Vec<u8>) -> Result<Vec<u8>, DotSegmentInRewrite> {
        let path_end = position(&target, b'?').unwrap_or(target.len());
        match !self.is_constant() && has_dot_segment(&target[..path_end]) {
            true => Err(DotSegmentInRewrite),
            false => Ok(target),
        }
    }

    /// Whether the target contains no client text.
    fn is_constant(&self) -> bool {
        matches!(&self.target, RewriteTarget::Uri(uri) if uri.as_plain().is_some())
    }

    fn raw_target(
        &self,
        ex: &Exchange<'_>,
        groups: &mut Option<MatchGroups>,
    ) -> Result<Vec<u8>, DotSegmentInRewrite> {
        let source = ex.request.real_request_uri();
        Ok(match &self.target {
            RewriteTarget::Uri(uri) => {
                let mut target = TargetBuilder::new(LiteralEncoding::AsWritten);
                uri.fill_target(ex, &mut target);
                if let Some(at) = position(source, b'?') {
                    target.add_query(&source[at + 1..]);
                }
                // The target of a template is not the target as received: its variables are client text and
                // are checked.
                self.without_dot_segment(target.finish())?
            }
            RewriteTarget::Patterns(patterns) => {
                let found = patterns.iter().find_map(|one| ex.decided(one.first(source, ex.budget())));
                let Some((out, captures)) = found else { return Ok(source.to_vec()) };
                *groups = self.has_fields().then(|| MatchGroups::of(&captures));
                out
            }
            RewriteTarget::AsItCame => source.to_vec(),
        })
    }

    /// The target with edited query arguments; `None` if it does not change.
    fn with_query_edits(
        &self,
        target: Option<Vec<u8>>,
        ex: &Exchange<'_>,
        groups: Option<&MatchGroups>,
    ) -> Option<Vec<u8>> {
        let Some(edits) = &self.query_edits else { return target };
        let values = edits.values(ex, groups);
        let before = target.as_deref().unwrap_or_else(|| ex.request.upstream_target());
        Some(edits.edited_target(&values, before))
    }

    fn edit_fields(&self, ex: &mut Exchange<'_>, groups: Option<&MatchGroups>) {
        let mut value = Vec::new();
        // The order of APISIX: add, set, remove.
        for (name, text) in &self.add {
            value.clear();
            text.fill(ex, groups, &mut value);
            ex.request.fields.add(name, &value);
        }
        for (name, texts) in &self.set {
            // An empty value counts as absent; without any value the field is removed.
            let mut has_value = false;
            for text in texts {
                value.clear();
                text.fill(ex, groups, &mut value);
                match (value.is_empty(), has_value) {
                    (true, _) => continue,
                    (false, false) => ex.request.fields.set(name, &value),
                    (false, true) => ex.request.fields.add(name, &value),
                }
                has_value = true;
            }
            if !has_value {
                ex.request.fields.remove(name);
                ex.upstream.omitted.omit(name);
            }
        }
        for name in &self.remove {
            ex.request.fields.remove(name);
        }
        ex.upstream.omitted.extend(self.omitted);
    }
}

impl Plugin for ProxyRewrite {
    fn phases(&self) -> PhaseSet {
        PhaseSet::REWRITE
    }

    fn rewrite<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        if let RewriteHost::Fixed(host) = &self.host {
            ex.upstream.host = Some(host.clone());
        }
        let mut groups = None;
        let target = match self.raw {
            true => self.raw_target(ex, &mut groups).map(Some),
            false => self.safe_target(ex, &mut groups),
        };
        let target = target.map(|target| self.with_query_edits(target, ex, groups.as_ref()));
        match target {
            Ok(Some(target)) if target != ex.request.upstream_target() => {
                ex.request.set_upstream_target(&target);
            }
            Ok(_) => {}
            Err(DotSegmentInRewrite) => {
                return Step::Respond(LocalResponse::error_msg(
                    400,
                    "the rewritten path has a dot segment or an invalid escape",
                ));
            }
        }
        if let RewriteHost::Field(text) = &self.host {
            let mut host = Vec::new();
            text.fill(ex, groups.as_ref(), &mut host);
            if !is_authority(&host) {
                return Step::Respond(LocalResponse::error_msg(400, "the rewritten Host is not valid"));
            }
            ex.upstream.host = Some(host.into());
        }
        // Rendered before any edit of this plugin, since templates see the request as it arrived here.
        let values = self.field_edits.as_ref().map(|edits| edits.values(ex, groups.as_ref()));
        self.edit_fields(ex, groups.as_ref());
        if let (Some(edits), Some(values)) = (&self.field_edits, &values) {
            edits.edit_fields(values, &mut ex.request.fields);
        }
        // Last, because templates may contain `$request_method`.
        if let Some(method) = &self.method {
            ex.request.set_method(method);
        }
        Step::Continue
    }

    fn dry_run(&self, phase: PhaseSet, ex: &mut Exchange<'_>) -> DryRunResult {
        DryRunResult::by_running(self, phase, ex)
    }
}

#[cfg(test)]
mod tests;
