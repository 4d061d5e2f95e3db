//! HTTPRoutes of the Gateway API that are equivalent to Ingresses.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::Context;
use serde_json::{Map, Value, json};
use yumen_kubernetes::ingress_nginx::{
    CanaryHeaderRule, IngressRewriteTarget, IngressSettings, SslRedirectRule, read_annotations,
};

use super::migration_source::{MigratedIngress, MigrationSource};

/// Annotations that become parts of routes.
const CONVERTED: [&str; 22] = [
    "canary",
    "canary-by-header",
    "canary-by-header-value",
    "canary-by-header-pattern",
    "canary-weight",
    "canary-weight-total",
    "cors-allow-credentials",
    "cors-allow-headers",
    "cors-allow-methods",
    "cors-allow-origin",
    "cors-expose-headers",
    "cors-max-age",
    "enable-cors",
    "force-ssl-redirect",
    "permanent-redirect",
    "permanent-redirect-code",
    "proxy-read-timeout",
    "rewrite-target",
    "ssl-redirect",
    "temporal-redirect",
    "temporal-redirect-code",
    "use-regex",
];

/// Routes of one document, with remarks about missing parts.
struct WrittenRoute {
    remarks: Vec<String>,
    object: Value,
}

/// The routes of all Ingresses, as YAML documents.
pub(super) fn routes(source: &MigrationSource, gateway: &str) -> anyhow::Result<String> {
    let (namespace, name) = gateway.split_once('/').context("--gateway is NAMESPACE/NAME")?;
    let writer = RouteConversion { source, parent: json!({ "namespace": namespace, "name": name }) };
    let mut text = String::new();
    for ingress in &source.ingresses {
        for route in writer.convert(ingress) {
            for remark in &route.remarks {
                writeln!(text, "# {}", remark.replace('\n', " "))?;
            }
            text.push_str(&serde_yaml_ng::to_string(&route.object)?);
            text.push_str("---\n");
        }
    }
    Ok(text)
}

struct RouteConversion<'s> {
    source: &'s MigrationSource,
    parent: Value,
}

impl RouteConversion<'_> {
    /// The routes of an Ingress: one for each host, and one that redirects to https.
    fn convert(&self, ingress: &MigratedIngress) -> Vec<WrittenRoute> {
        let (settings, problems) = read_annotations(&ingress.meta, &self.source.controller);
        // The rules of a canary are in the route of its partner.
        if settings.canary.is_some() && self.partner(ingress).is_some() {
            return Vec::new();
        }
        let prefix = format!("{}/", self.source.controller.policy.prefix);
        let names = ingress.meta.annotations.keys().filter_map(|name| name.strip_prefix(&prefix));
        let mut remarks: Vec<String> = names
            .filter(|name| !CONVERTED.contains(name))
            .map(|name| {
                format!("{name}: no counterpart in HTTPRoute; attach a policy, or go on with the Ingress")
            })
            .collect();
        remarks.extend(
            problems
                .iter()
                .filter(|one| one.way_over.is_some())
                .map(|one| format!("{}: {}", one.annotation.trim_start_matches(&prefix), one.reason)),
        );
        let spec = &ingress.object["spec"];
        let has_tls = spec["tls"].as_array().is_some_and(|tls| !tls.is_empty());
        let redirects = match settings.redirects.ssl {
            SslRedirectRule::Off => false,
            SslRedirectRule::WithTls => has_tls,
            SslRedirectRule::Always => true,
        };
        let mut hosts: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
        for rule in spec["rules"].as_array().into_iter().flatten() {
            let host = rule["host"].as_str().unwrap_or_default();
            let rules = hosts.entry(host).or_default();
            for path in rule["http"]["paths"].as_array().into_iter().flatten() {
                rules.extend(self.rules_of(ingress, host, path, &settings, &mut remarks));
            }
        }
        if let Some(service) = spec["defaultBackend"]["service"].as_object() {
            let backends = [backend(&Value::Object(service.clone()), None, &mut remarks)];
            hosts.entry("").or_default().push(json!({ "backendRefs": backends }));
        }
        let mut routes = Vec::new();
        for (at, (host, rules)) in hosts.into_iter().enumerate() {
            let name = match at {
                0 => ingress.meta.name.to_string(),
                at => format!("{}-{at}", ingress.meta.name),
            };
            let section = redirects.then_some("https");
            let remarks = if at == 0 { std::mem::take(&mut remarks) } else { Vec::new() };
            routes.push(WrittenRoute { remarks, object: self.route(ingress, &name, host, section, rules) });
            if redirects {
                let status = self.source.controller.redirects.status;
                let redirect = json!({ "scheme": "https", "statusCode": status });
                let filter = json!({ "type": "RequestRedirect", "requestRedirect": redirect });
                let rule = json!({ "filters": [filter] });
                let name = format!("{name}-to-https");
                let object = self.route(ingress, &name, host, Some("http"), vec![rule]);
                routes.push(WrittenRoute { remarks: Vec::new(), object });
            }
        }
        routes
    }

    fn route(
        &self,
        ingress: &MigratedIngress,
        name: &str,
        host: &str,
        section: Option<&str>,
        rules: Vec<Value>,
    ) -> Value {
        let mut parent = self.parent.clone();
        if let Some(section) = section {
            parent["sectionName"] = section.into();
        }
        let mut spec = json!({ "parentRefs": [parent] });
        if !host.is_empty() {
            spec["hostnames"] = json!([host]);
        }
        spec["rules"] = rules.into();
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "HTTPRoute",
            "metadata": { "name": name, "namespace": &*ingress.meta.namespace },
            "spec": spec,
        })
    }

    /// The rules of a path: that of a canary's header first.
    fn rules_of(
        &self,
        ingress: &MigratedIngress,
        host: &str,
        path: &Value,
        settings: &IngressSettings,
        remarks: &mut Vec<String>,
    ) -> Vec<Value> {
        let mut filters = Vec::new();
        let redirect = settings.redirects.fixed.as_ref().and_then(|fixed| redirect_filter(fixed, remarks));
        let is_redirect = redirect.is_some();
        filters.extend(redirect);
        let (matching, rewrite) = path_match(path, settings, remarks);
        if !is_redirect {
            filters.extend(rewrite);
        }
        filters.extend(cors_filter(settings));
        let service = &path["backend"]["service"];
        let mut rule = Map::from_iter([("matches".to_owned(), json!([{ "path": matching }]))]);
        if !filters.is_empty() {
            rule.insert("filters".to_owned(), filters.into());
        }
        if is_redirect {
            return vec![rule.into()];
        }
        let read_timeout = settings.proxy.read_timeout_s;
        if read_timeout != 60 {
            // The time between two reads there, that of the whole attempt here.
            rule.insert("timeouts".to_owned(), json!({ "backendRequest": format!("{read_timeout}s") }));
        }
        let canary = self.canary(ingress, host, path);
        let Some((canary_settings, canary_service)) = canary else {
            rule.insert("backendRefs".to_owned(), json!([backend(service, None, remarks)]));
            return vec![rule.into()];
        };
        let Some(rules) = canary_settings.canary else { return vec![rule.into()] };
        let mut all = Vec::new();
        if let Some((name, header)) = &rules.header {
            let (kind, value) = match header {
                CanaryHeaderRule::Words => ("Exact", "always"),
                CanaryHeaderRule::Value(value) => ("Exact", &**value),
                CanaryHeaderRule::Pattern(pattern) => ("RegularExpression", &**pattern),
            };
            let mut chosen = rule.clone();
            let header = json!({ "name": &**name, "type": kind, "value": value });
            chosen.insert("matches".to_owned(), json!([{ "path": matching, "headers": [header] }]));
            chosen.insert("backendRefs".to_owned(), json!([backend(&canary_service, None, remarks)]));
            all.push(chosen.into());
        }
        if rules.cookie.is_some() {
            remarks.push("canary-by-cookie: no counterpart in HTTPRoute".to_owned());
        }
        let rest = rules.weight_total - rules.weight;
        let refs = match rules.weight {
            0 => vec![backend(service, None, remarks)],
            weight => {
                vec![backend(service, Some(rest), remarks), backend(&canary_service, Some(weight), remarks)]
            }
        };
        rule.insert("backendRefs".to_owned(), refs.into());
        all.push(rule.into());
        all
    }

    /// The canary of a path with its service.
    fn canary(
        &self,
        ingress: &MigratedIngress,
        host: &str,
        path: &Value,
    ) -> Option<(IngressSettings, Value)> {
        self.source.ingresses.iter().filter(|other| other.meta.namespace == ingress.meta.namespace).find_map(
            |other| {
                let (settings, _) = read_annotations(&other.meta, &self.source.controller);
                settings.canary.as_ref()?;
                let service = service_at(other, host, path)?;
                Some((settings, service))
            },
        )
    }

    /// The Ingress that a canary belongs to.
    fn partner(&self, canary: &MigratedIngress) -> Option<&MigratedIngress> {
        self.source.ingresses.iter().find(|other| {
            let rules = canary.object["spec"]["rules"].as_array().into_iter().flatten();
            let mut paths = rules.flat_map(|rule| {
                let host = rule["host"].as_str().unwrap_or_default();
                let paths = rule["http"]["paths"].as_array().into_iter().flatten();
                paths.map(move |path| (host, path))
            });
            other.name() != canary.name()
                && other.meta.namespace == canary.meta.namespace
                && paths.any(|(host, path)| service_at(other, host, path).is_some())
        })
    }
}

/// The service of the same host, path and type in another Ingress.
fn service_at(ingress: &MigratedIngress, host: &str, path: &Value) -> Option<Value> {
    let rules = ingress.object["spec"]["rules"].as_array().into_iter().flatten();
    let rules = rules.filter(|rule| rule["host"].as_str().unwrap_or_default() == host);
    let mut paths = rules.flat_map(|rule| rule["http"]["paths"].as_array().into_iter().flatten());
    let found = paths.find(|other| other["path"] == path["path"] && other["pathType"] == path["pathType"])?;
    Some(found["backend"]["service"].clone())
}

fn backend(service: &Value, weight: Option<u32>, remarks: &mut Vec<String>) -> Value {
    let name = service["name"].as_str().unwrap_or_default();
    let mut reference = json!({ "name": name });
    match (&service["port"]["number"], &service["port"]["name"]) {
        (Value::Number(port), _) => reference["port"] = Value::Number(port.clone()),
        (_, Value::String(port)) => {
            remarks.push(format!(
                "write the number of port {port:?} of Service {name}: HTTPRoute has no names of ports"
            ));
            reference["port"] = 80.into();
        }
        _ => {}
    }
    if let Some(weight) = weight {
        reference["weight"] = weight.into();
    }
    reference
}

fn redirect_filter(
    fixed: &yumen_kubernetes::ingress_nginx::FixedRedirect,
    remarks: &mut Vec<String>,
) -> Option<Value> {
    let (scheme, rest) = fixed.location.split_once("://")?;
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let (host, port) = authority.split_once(':').unwrap_or((authority, ""));
    let mut redirect = json!({ "scheme": scheme, "hostname": host, "statusCode": fixed.status });
    if let Ok(port) = port.parse::<u16>() {
        redirect["port"] = port.into();
    }
    let path = if path.is_empty() { "/" } else { path };
    redirect["path"] = json!({ "type": "ReplaceFullPath", "replaceFullPath": path });
    if fixed.location.contains('?') {
        remarks.push(
            "a redirect of HTTPRoute keeps the query of the request and has none of its own".to_owned(),
        );
    }
    Some(json!({ "type": "RequestRedirect", "requestRedirect": redirect }))
}

/// The match of a path, and the filter of its rewrite.
fn path_match(path: &Value, settings: &IngressSettings, remarks: &mut Vec<String>) -> (Value, Option<Value>) {
    let written = path["path"].as_str().filter(|path| !path.is_empty()).unwrap_or("/");
    let kind = path["pathType"].as_str().unwrap_or("ImplementationSpecific");
    let target = match &settings.rewrite.target {
        Some(IngressRewriteTarget::Path(target)) if **target != *written => Some(&**target),
        Some(IngressRewriteTarget::Redirect(target)) => {
            remarks.push(format!(
                "rewrite-target: the redirect to {target} has groups, which HTTPRoute has not"
            ));
            None
        }
        _ => None,
    };
    // `/a(/|$)(.*)` with `/$2` is the usual way to cut a prefix.
    let prefix =
        ["(/|$)(.*)", "/(.*)", "(/.*)?"].iter().find_map(|end| Some((written.strip_suffix(end)?, *end)));
    if let (Some((prefix, end)), Some(target)) = (prefix, target) {
        let group = if end == "(/|$)(.*)" { "$2" } else { "$1" };
        if let Some(base) =
            target.strip_suffix(group).filter(|base| !base.contains('$') && !prefix.contains(['(', '*']))
        {
            let base = if base.len() > 1 { base.trim_end_matches('/') } else { "/" };
            let edit = json!({ "path": { "type": "ReplacePrefixMatch", "replacePrefixMatch": base } });
            let value = if prefix.is_empty() { "/" } else { prefix };
            let filter = json!({ "type": "URLRewrite", "urlRewrite": edit });
            return (json!({ "type": "PathPrefix", "value": value }), Some(filter));
        }
    }
    let is_pattern = settings.rewrite.use_regex || target.is_some();
    let matching = match (is_pattern, kind) {
        // Patterns there match from the start of the path on and ignore case.
        (true, _) => json!({ "type": "RegularExpression", "value": format!("(?i){written}.*") }),
        (false, "Exact") => json!({ "type": "Exact", "value": written }),
        (false, _) => json!({ "type": "PathPrefix", "value": written }),
    };
    let filter = target.and_then(|target| {
        if target.contains('$') {
            remarks.push(format!("rewrite-target: {target} has groups, which HTTPRoute has not"));
            return None;
        }
        let edit = json!({ "path": { "type": "ReplaceFullPath", "replaceFullPath": target } });
        Some(json!({ "type": "URLRewrite", "urlRewrite": edit }))
    });
    (matching, filter)
}

fn cors_filter(settings: &IngressSettings) -> Option<Value> {
    let cors = settings.cors.as_ref()?;
    let list = |text: &str| -> Vec<String> {
        text.split(',').map(str::trim).filter(|entry| !entry.is_empty()).map(str::to_owned).collect()
    };
    let mut value = json!({
        "allowOrigins": cors.origins.iter().map(|origin| &**origin).collect::<Vec<_>>(),
        "allowMethods": list(&cors.methods),
        "allowHeaders": list(&cors.headers),
        "allowCredentials": cors.credentials,
        "maxAge": cors.max_age_s,
    });
    if !cors.expose_headers.is_empty() {
        value["exposeHeaders"] = list(&cors.expose_headers).into();
    }
    Some(json!({ "type": "CORS", "cors": value }))
}
