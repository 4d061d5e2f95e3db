//! `proxy-rewrite`: changes what the upstream is asked for: target, host, method, fields.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use yumen_config::schema::Invalid;
use yumen_http::uri::encode_path;
use yumen_plugin::{Configure, Exchange, Foreseen, Phases, Plugin, Setup, Step};

use crate::pattern::{self, Replacement, Substitution};
use crate::text::{Groups, HeaderMap, Headers, Text, decoded, header_map_schema, is_field_name};

/// The settings.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(extend("minProperties" = 1))]
pub(crate) struct Config {
    /// The new target; variables are filled in. Wins over `regex_uri`.
    #[schemars(length(min = 1, max = 4096), regex(pattern = r"^\/.*"))]
    uri: Option<String>,
    /// The new method.
    #[schemars(extend("enum" = ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "LOCK", "TRACE",
        "UNLOCK", "PROPFIND", "MOVE", "COPY", "MKCOL"]))]
    method: Option<String>,
    /// Patterns over the path, each followed by what its match becomes; the first that matches counts.
    #[schemars(length(min = 2))]
    regex_uri: Option<Vec<String>>,
    /// The new host, with a port if need be.
    #[schemars(regex(pattern = r"^[0-9a-zA-Z-._]+(:\d{1,5})?$"))]
    host: Option<String>,
    /// Fields to add, set and remove; or a map of fields to set.
    #[serde(default)]
    #[schemars(schema_with = "headers_schema")]
    headers: Option<Headers<HeaderMap>>,
    /// Work on the target as received. Unsafe: rules that looked at the normal form can be evaded, and a credential
    /// that `hide_credentials` took out of the query goes upstream.
    #[serde(default)]
    use_real_request_uri_unsafe: bool,
}

fn headers_schema(generator: &mut SchemaGenerator) -> Schema {
    let scalar = serde_json::json!([{"type": "string"}, {"type": "number"}]);
    let many = json_schema!({
        "type": "object",
        "minProperties": 1,
        "patternProperties": {"^[^:]+$": {"oneOf": [
            {"type": "string"},
            {"type": "number"},
            {"type": "array", "minItems": 1, "items": {"oneOf": scalar}},
        ]}},
    });
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

enum Target {
    Uri(Text),
    Patterns(Box<[Substitution]>),
    AsItCame,
}

/// Rewrites requests.
pub(crate) struct ProxyRewrite {
    target: Target,
    raw: bool,
    method: Option<String>,
    host: Option<Box<[u8]>>,
    add: Vec<(String, Text)>,
    set: Vec<(String, Vec<Text>)>,
    remove: Vec<String>,
}

impl Configure for ProxyRewrite {
    const NAME: &'static str = "proxy-rewrite";
    const PRIORITY: i32 = 1008;
    type Config = Config;

    fn build(config: Config, _: &Setup<'_>) -> Result<Self, Invalid> {
        let operations = config.headers.map(Headers::into_operations).unwrap_or_default();
        let names = operations.add.0.iter().chain(&operations.set.0).map(|(name, _)| name);
        if !names.chain(&operations.remove).all(|name| is_field_name(name)) {
            return Err(Invalid::at("headers", "invalid field character in header"));
        }
        // Patterns are checked even where `uri` wins, as they may be meant for later.
        let patterns = patterns(config.regex_uri.as_deref().unwrap_or(&[]))?;
        let target = match config.uri {
            Some(uri) if config.use_real_request_uri_unsafe => Target::Uri(Text::parse(&uri)),
            Some(uri) => Target::Uri(Text::parse(&decoded(&uri))),
            None if !patterns.is_empty() => Target::Patterns(patterns),
            None => Target::AsItCame,
        };
        let texts = |values: Vec<String>| values.iter().map(|value| Text::parse(value)).collect::<Vec<_>>();
        let each = |(name, values): (String, Vec<String>)| {
            texts(values).into_iter().map(move |value| (name.clone(), value))
        };
        Ok(ProxyRewrite {
            target,
            raw: config.use_real_request_uri_unsafe,
            method: config.method,
            host: config.host.map(|host| host.into_bytes().into()),
            add: operations.add.0.into_iter().flat_map(each).collect(),
            set: operations.set.0.into_iter().map(|(name, values)| (name, texts(values))).collect(),
            remove: operations.remove,
        })
    }
}

fn patterns(list: &[String]) -> Result<Box<[Substitution]>, Invalid> {
    let (pairs, rest) = list.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(Invalid::new("The length of regex_uri should be an even number"));
    }
    let one = |[pattern, template]: &[String; 2]| {
        let both = pattern::compile(pattern, "regex_uri")
            .and_then(|regex| Ok((regex, Replacement::parse(template, "regex_uri")?)));
        match both {
            Ok((regex, by)) => Ok(Substitution::new(regex, by)),
            Err(error) => {
                let message = format!("invalid regex_uri({pattern}, {template}): {}", error.message);
                Err(Invalid::new(message))
            }
        }
    };
    pairs.iter().map(one).collect()
}

fn position(text: &[u8], byte: u8) -> Option<usize> {
    text.iter().position(|at| *at == byte)
}

impl ProxyRewrite {
    /// The new path and query over `source`, and whether a question mark in it begins a query.
    fn rewritten(&self, ex: &Exchange<'_>, source: &[u8], groups: &mut Option<Groups>) -> (Vec<u8>, bool) {
        match &self.target {
            Target::Uri(uri) => {
                let mut out = Vec::with_capacity(source.len() + 32);
                // A question mark in a variable's value must not begin the query.
                uri.fill(ex, None, &mut out, |out, start| {
                    while let Some(at) = position(&out[start..], b'?') {
                        out.splice(start + at..=start + at, *b"%3F");
                    }
                });
                (out, true)
            }
            Target::Patterns(patterns) => {
                // A question mark in the decoded path was `%3F` in the request, and is again below.
                let begins_query = position(source, b'?').is_none();
                for one in patterns {
                    if let Some((out, captures)) = ex.decided(one.first(source, &ex.budget)) {
                        *groups = self.has_fields().then(|| Groups::of(&captures));
                        return (out, begins_query);
                    }
                }
                (source.to_vec(), begins_query)
            }
            Target::AsItCame => (source.to_vec(), false),
        }
    }

    fn has_fields(&self) -> bool {
        !(self.add.is_empty() && self.set.is_empty())
    }

    fn safe_target(&self, ex: &Exchange<'_>, groups: &mut Option<Groups>) -> Vec<u8> {
        let (target, begins_query) = self.rewritten(ex, ex.request.path(), groups);
        let question = if begins_query { position(&target, b'?') } else { None };
        let (path, query) = target.split_at(question.unwrap_or(target.len()));
        let args = ex.request.query().unwrap_or(b"");
        let mut out = Vec::with_capacity(target.len() + args.len() + 8);
        encode_path(path, &mut out);
        out.extend_from_slice(query);
        if !args.is_empty() {
            out.push(if question.is_some() { b'&' } else { b'?' });
            out.extend_from_slice(args);
        }
        out
    }

    fn raw_target(&self, ex: &Exchange<'_>, groups: &mut Option<Groups>) -> Vec<u8> {
        let request = &ex.request;
        let source = request.real_request_uri();
        let (mut out, _) = self.rewritten(ex, source, groups);
        if let (Target::Uri(_), Some(at)) = (&self.target, position(source, b'?')) {
            let joint = if position(&out, b'?').is_some() { b'&' } else { b'?' };
            out.push(joint);
            out.extend_from_slice(&source[at + 1..]);
        }
        out
    }

    fn edit_fields(&self, ex: &mut Exchange<'_>, groups: Option<&Groups>) {
        let mut value = Vec::new();
        for (name, text) in &self.add {
            value.clear();
            text.fill(ex, groups, &mut value, |_, _| {});
            ex.request.fields.add(name, &value);
        }
        for (name, texts) in &self.set {
            // What comes out empty is no value: without any, the field goes.
            let mut has_value = false;
            for text in texts {
                value.clear();
                text.fill(ex, groups, &mut value, |_, _| {});
                match (value.is_empty(), has_value) {
                    (true, _) => continue,
                    (false, false) => ex.request.fields.set(name, &value),
                    (false, true) => ex.request.fields.add(name, &value),
                }
                has_value = true;
            }
            if !has_value {
                ex.request.fields.remove(name);
            }
        }
        for name in &self.remove {
            ex.request.fields.remove(name);
        }
    }
}

impl Plugin for ProxyRewrite {
    fn phases(&self) -> Phases {
        Phases::REWRITE
    }

    fn rewrite<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        if let Some(host) = &self.host {
            ex.upstream.host = Some(host.clone());
        }
        let mut groups = None;
        let target = match self.raw {
            true => self.raw_target(ex, &mut groups),
            false => self.safe_target(ex, &mut groups),
        };
        if target != ex.request.upstream_target() {
            ex.request.set_upstream_target(&target);
        }
        self.edit_fields(ex, groups.as_ref());
        if let Some(method) = &self.method {
            ex.request.set_method(method);
        }
        Step::Continue
    }

    fn foresee(&self, phase: Phases, ex: &mut Exchange<'_>) -> Foreseen {
        Foreseen::by_running(self, phase, ex)
    }
}

#[cfg(test)]
mod tests;
