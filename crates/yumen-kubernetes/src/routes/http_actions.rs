//! Filters of HTTPRoute and GRPCRoute as actions.

use serde_json::{Map, Value, json};

use super::backends::{BackendResolver, BackendTarget};
use super::field_edits::edits_value;
use super::path_edits::RulePathEdit;
use super::rule::{
    BackendActions, RedirectPlan, ReferringAction, RewritePlan, RuleActions, RuleDefect, RulePlugins,
};
use crate::derived::{ConditionReason, UpstreamFlavor};
use crate::engine::TrackedView;
use crate::model::{
    ClusterKind, ExtensionReference, HttpCorsFilter, HttpExternalAuthFilter, HttpRedirectFilter,
    HttpRouteFilter, ListedPlugin, MirrorFilter, ObjectKey, PluginConfigObject,
};

/// Seconds for which clients keep a preflight response, as the API defaults.
const MAX_AGE_S: u32 = 5;

/// Translates the filters of one rule.
pub(super) struct FilterTranslator<'f, 'r, 't> {
    pub(super) resolver: &'f mut BackendResolver<'r, 't>,
    /// The use of upstreams that mirrors name.
    pub(super) flavor: UpstreamFlavor,
    /// Whether all matches of the rule are prefixes of paths.
    pub(super) all_prefixes: bool,
}

impl FilterTranslator<'_, '_, '_> {
    /// The actions of a rule. Every filter is looked at, so that all references are judged.
    pub(super) fn rule_actions<'x>(
        &mut self,
        filters: impl IntoIterator<Item = &'x HttpRouteFilter>,
    ) -> Result<RuleActions, RuleDefect> {
        let mut actions = RuleActions::default();
        let mut defect = None;
        for filter in filters {
            if let Err(found) = self.add(filter, &mut actions) {
                defect.get_or_insert(found);
            }
        }
        if actions.redirect.is_some() && actions.edits.rewrite.is_some() {
            let message = "RequestRedirect answers every request, so URLRewrite has no effect";
            let reason = ConditionReason::new("IncompatibleFilters", message);
            defect.get_or_insert(RuleDefect::Invalid(reason));
        }
        defect.map_or(Ok(actions), Err)
    }

    /// Adds an edit of fields or a rewrite; returns whether the filter is one.
    pub(super) fn add_edit(
        &self,
        filter: &HttpRouteFilter,
        edits: &mut BackendActions,
    ) -> Result<bool, RuleDefect> {
        match &*filter.kind {
            "RequestHeaderModifier" => {
                once(&filter.kind, edits.request_fields.is_some())?;
                let modifier = filter.request_header_modifier.as_ref();
                edits.request_fields = edits_value(modifier.ok_or_else(|| no_member(filter))?)?;
            }
            "ResponseHeaderModifier" => {
                once(&filter.kind, edits.response_fields.is_some())?;
                let modifier = filter.response_header_modifier.as_ref();
                edits.response_fields = edits_value(modifier.ok_or_else(|| no_member(filter))?)?;
            }
            "URLRewrite" => {
                once(&filter.kind, edits.rewrite.is_some())?;
                let rewrite = filter.url_rewrite.as_ref().ok_or_else(|| no_member(filter))?;
                let path = RulePathEdit::read(rewrite.path.as_ref(), self.all_prefixes)?;
                let plan = RewritePlan { host: rewrite.hostname.clone(), path };
                edits.rewrite = (plan != RewritePlan::default()).then_some(plan);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn add(&mut self, filter: &HttpRouteFilter, actions: &mut RuleActions) -> Result<(), RuleDefect> {
        if self.add_edit(filter, &mut actions.edits)? {
            return Ok(());
        }
        match &*filter.kind {
            "RequestRedirect" => {
                once(&filter.kind, actions.redirect.is_some())?;
                let redirect = filter.request_redirect.as_ref().ok_or_else(|| no_member(filter))?;
                actions.redirect = Some(self.redirect(redirect)?);
            }
            "RequestMirror" => {
                let mirror = filter.request_mirror.as_ref().ok_or_else(|| no_member(filter))?;
                actions.mirrors.extend(self.mirror(mirror)?);
            }
            "CORS" => {
                once(&filter.kind, actions.cors.is_some())?;
                actions.cors = Some(cors(filter.cors.as_ref().ok_or_else(|| no_member(filter))?));
            }
            "ExternalAuth" => {
                once(&filter.kind, actions.external_auth.is_some())?;
                let auth = filter.external_auth.as_ref().ok_or_else(|| no_member(filter))?;
                actions.external_auth = Some(self.external_auth(auth)?);
            }
            "ExtensionRef" => {
                let reference = filter.extension_ref.as_ref().ok_or_else(|| no_member(filter))?;
                let plugins = self.plugin_config(reference)?;
                actions.plugins = Some(merged(actions.plugins.take(), plugins, self.resolver.view));
            }
            kind => return Err(RuleDefect::unsupported(format!("filter type {kind:?} is not supported"))),
        }
        Ok(())
    }

    fn redirect(&self, written: &HttpRedirectFilter) -> Result<RedirectPlan, RuleDefect> {
        let mut members = Map::new();
        let status = written.status_code.unwrap_or(302);
        if !matches!(status, 301 | 302 | 303 | 307 | 308) {
            return Err(RuleDefect::unsupported(format!("statusCode {status} is no redirection")));
        }
        members.insert("status".to_owned(), status.into());
        if let Some(scheme) = &written.scheme {
            if !matches!(scheme.as_str(), "http" | "https") {
                return Err(RuleDefect::unsupported(format!("scheme {scheme:?} is not supported")));
            }
            members.insert("scheme".to_owned(), scheme.as_str().into());
        }
        if let Some(host) = &written.hostname {
            members.insert("host".to_owned(), host.as_str().into());
        }
        if let Some(port) = written.port.filter(|port| *port != 0) {
            members.insert("port".to_owned(), port.into());
        }
        let path = RulePathEdit::read(written.path.as_ref(), self.all_prefixes)?;
        Ok(RedirectPlan { members, path })
    }

    /// A mirror; `None` if its backend does not resolve, which leaves the route as it is.
    fn mirror(&mut self, written: &MirrorFilter) -> Result<Option<ReferringAction>, RuleDefect> {
        let (numerator, denominator) = match (written.percent, &written.fraction) {
            (Some(_), Some(_)) => {
                return Err(RuleDefect::unsupported("a mirror has either percent or fraction"));
            }
            (Some(percent), None) => (percent, 100),
            (None, Some(fraction)) => (fraction.numerator, fraction.denominator.unwrap_or(100)),
            (None, None) => (1, 1),
        };
        if denominator == 0 || numerator > denominator {
            let message = format!("a mirror of {numerator} of {denominator} requests is not possible");
            return Err(RuleDefect::unsupported(message));
        }
        let BackendTarget::Port(port) = self.resolver.resolve(&written.backend_ref, self.flavor) else {
            return Ok(None);
        };
        let mut members = Map::new();
        if (numerator, denominator) != (1, 1) {
            members.insert("numerator".to_owned(), numerator.into());
            members.insert("denominator".to_owned(), denominator.into());
        }
        Ok(Some(ReferringAction { port, members }))
    }

    fn external_auth(&mut self, written: &HttpExternalAuthFilter) -> Result<ReferringAction, RuleDefect> {
        let (protocol, flavor) = match &*written.protocol {
            "HTTP" => ("http", UpstreamFlavor::Http),
            "GRPC" => ("grpc", UpstreamFlavor::Grpc),
            other => {
                let message = format!("protocol {other:?} of ExternalAuth is not supported");
                return Err(RuleDefect::unsupported(message));
            }
        };
        let mut members = Map::new();
        members.insert("protocol".to_owned(), protocol.into());
        let lists = match (protocol, &written.http, &written.grpc) {
            ("http", Some(http), _) => {
                if !http.path.is_empty() {
                    let path = http.path.trim_start_matches('/');
                    members.insert("path".to_owned(), format!("/{path}").into());
                }
                [&http.allowed_headers[..], &http.allowed_response_headers[..]]
            }
            ("grpc", _, Some(grpc)) => [&grpc.allowed_headers[..], &[]],
            _ => [&[][..], &[]],
        };
        for (name, list) in ["allowed_headers", "allowed_response_headers"].into_iter().zip(lists) {
            if !list.is_empty() {
                members.insert(name.to_owned(), list.into());
            }
        }
        if let Some(body) = written.forward_body.as_ref().filter(|body| body.max_size > 0) {
            members.insert("body_bytes_max".to_owned(), body.max_size.into());
        }
        // Without its service nothing may pass.
        match self.resolver.resolve(&written.backend_ref, flavor) {
            BackendTarget::Port(port) => Ok(ReferringAction { port, members }),
            BackendTarget::Status(_) => Err(RuleDefect::Unresolved),
        }
    }

    /// The PluginConfig that a filter names. A rule without its plugins must not serve: they may guard.
    fn plugin_config(&mut self, reference: &ExtensionReference) -> Result<ObjectKey, RuleDefect> {
        let ExtensionReference { group, kind, name } = reference;
        if ClusterKind::find(group, kind) != Some(ClusterKind::PluginConfig) {
            let message = format!(
                "ExtensionRef {name:?} has kind {group}/{kind}, which is not supported; allowed: PluginConfig of \
                 apisix.apache.org."
            );
            self.resolver.mark_unresolved(ConditionReason::new("InvalidKind", message));
            return Err(RuleDefect::Unresolved);
        }
        let namespace = &self.resolver.route.namespace;
        let key =
            ObjectKey { kind: ClusterKind::PluginConfig, namespace: namespace.clone(), name: name.clone() };
        if self.resolver.view.get::<PluginConfigObject>(&key).is_none() {
            let message = format!("{key} does not exist.");
            self.resolver.mark_unresolved(ConditionReason::new("BackendNotFound", message));
            return Err(RuleDefect::Unresolved);
        }
        Ok(key)
    }
}

/// The plugins of a rule with those of one more PluginConfig.
fn merged(before: Option<RulePlugins>, added: ObjectKey, view: &TrackedView<'_>) -> RulePlugins {
    let plugins_of = |key: &ObjectKey| {
        let object = view.get::<PluginConfigObject>(key);
        let entries = object.into_iter().flat_map(|object| &object.spec.plugins);
        let plugin = |entry: &ListedPlugin| {
            (entry.name.to_string(), entry.config.clone().unwrap_or_else(|| json!({})))
        };
        entries.map(plugin).collect::<Map<_, _>>()
    };
    let mut plugins = match before {
        None => return RulePlugins::Set(added),
        Some(RulePlugins::Set(first)) => plugins_of(&first),
        Some(RulePlugins::Merged(plugins)) => plugins,
    };
    plugins.extend(plugins_of(&added));
    RulePlugins::Merged(plugins)
}

fn cors(written: &HttpCorsFilter) -> Value {
    json!({
        "allow_origins": written.allow_origins,
        "allow_credentials": written.allow_credentials.unwrap_or(false),
        "allow_methods": written.allow_methods,
        "allow_headers": written.allow_headers,
        "expose_headers": written.expose_headers,
        "max_age": written.max_age.unwrap_or(MAX_AGE_S),
    })
}

/// Refuses a second filter of a type.
fn once(kind: &str, is_present: bool) -> Result<(), RuleDefect> {
    match is_present {
        true => Err(RuleDefect::unsupported(format!("filter {kind} occurs twice"))),
        false => Ok(()),
    }
}

fn no_member(filter: &HttpRouteFilter) -> RuleDefect {
    RuleDefect::unsupported(format!("filter {} has no settings", filter.kind))
}
