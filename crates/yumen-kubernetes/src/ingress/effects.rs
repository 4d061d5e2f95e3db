//! Effects of settings on the route of a location, by group.
//!
//! Each function adds members for one group of annotations. A protection that cannot be built denies the location.

mod access;
mod auth_service;
mod cors;
mod errors;
mod fields;
mod proxying;
mod redirects;
mod snippets;

use std::sync::Arc;

use serde_json::{Map, Value};
use yumen_base::problem::Problem;

use super::certificates::HostTls;
use super::locations::{HostLocation, SnippetUse};
use crate::derived::{ParsedIngress, UpstreamKey};
use crate::engine::{ReferencedObject, TrackedView};
use crate::ingress_nginx::{
    ControllerSettings, IngressClientTls, IngressSettings, NginxText, SnippetPlan, TextPart,
};
use crate::model::{ConfigMapObject, ObjectKey};
use crate::resources::SpecDefect;

pub(super) use access::{client_certificate, plugin_set};
pub(super) use redirects::{app_root_route, fixed_redirect, slash_redirect};

/// The host of a location.
#[derive(Debug)]
pub(super) struct HostContext<'h, 't> {
    pub(super) host: &'h str,
    pub(super) scope: &'h str,
    pub(super) has_patterns: bool,
    pub(super) tls: &'h HostTls,
    /// Rules for client certificates of the host.
    pub(super) client: Option<&'t IngressClientTls>,
    /// The server snippet of the host's first Ingress with one.
    pub(super) server_snippet: Option<&'t SnippetPlan>,
    pub(super) defaults: &'t ControllerSettings,
}

/// The route of a location in the making.
pub(super) struct LocationDraft<'d, 'h, 't> {
    pub(super) view: &'d TrackedView<'t>,
    pub(super) context: &'d HostContext<'h, 't>,
    pub(super) location: &'d HostLocation<'t>,
    pub(super) settings: &'t IngressSettings,
    /// Members of `actions`.
    pub(super) actions: Map<String, Value>,
    /// Members of the route.
    pub(super) members: Map<String, Value>,
    pub(super) defects: Vec<SpecDefect>,
    /// Why the location answers 503.
    pub(super) denial: Option<String>,
    pub(super) problems: Vec<Problem>,
    /// Upstreams that are not Services.
    pub(super) own_upstreams: Vec<(String, Value)>,
    pub(super) upstreams: Vec<UpstreamKey>,
}

impl<'d, 'h, 't> LocationDraft<'d, 'h, 't> {
    pub(super) fn new(
        view: &'d TrackedView<'t>,
        context: &'d HostContext<'h, 't>,
        location: &'d HostLocation<'t>,
    ) -> Self {
        let settings = location.owner.map_or(&context.defaults.defaults, |owner| &owner.settings);
        LocationDraft {
            view,
            context,
            location,
            settings,
            actions: Map::new(),
            members: Map::new(),
            defects: Vec::new(),
            denial: None,
            problems: Vec::new(),
            own_upstreams: Vec::new(),
            upstreams: Vec::new(),
        }
    }

    /// Adds the effects of all groups.
    pub(super) fn add_all(&mut self, service: Option<&Arc<str>>, snippets: &SnippetUse<'_>) {
        redirects::add(self);
        access::add(self);
        auth_service::add(self);
        cors::add(self);
        fields::add(self, service);
        proxying::add(self);
        errors::add(self, service);
        snippets::add(self, snippets, service);
    }

    /// Adds the effects of snippets alone.
    pub(super) fn add_snippets(&mut self, uses: &SnippetUse<'_>) {
        self.set_action("errors", "format", "html".into());
        snippets::add(self, uses, None);
    }

    /// Sets a member of an action, whose other members stay.
    pub(super) fn set_action(&mut self, action: &str, member: &str, value: Value) {
        let entry = self.actions.entry(action.to_owned()).or_insert_with(|| Map::new().into());
        entry[member] = value;
    }

    /// Appends to a list of an action, such as `request_fields.set`.
    pub(super) fn push_action(&mut self, action: &str, member: &str, value: Value) {
        let entry = self.actions.entry(action.to_owned()).or_insert_with(|| Map::new().into());
        match entry[member].as_array_mut() {
            Some(list) => list.push(value),
            None => entry[member] = Value::Array(vec![value]),
        }
    }

    /// Denies every request of the location.
    pub(super) fn deny(&mut self, annotation: &str, reason: String) {
        if let Some(owner) = self.location.owner {
            let message = format!("{reason}: the paths of the Ingress answer 503");
            let path = self.annotation_path(annotation);
            self.problems.push(Problem::error(owner.key.to_string(), path, message));
        }
        self.denial.get_or_insert(reason);
    }

    /// Reports a part that is left out.
    pub(super) fn warn(&mut self, annotation: &str, reason: impl Into<String>) {
        if let Some(owner) = self.location.owner {
            let path = self.annotation_path(annotation);
            self.problems.push(Problem::warning(owner.key.to_string(), path, reason.into()));
        }
    }

    fn annotation_path(&self, annotation: &str) -> String {
        annotation_path(self.context.defaults, annotation)
    }

    pub(super) fn owner(&self) -> Option<&'t ParsedIngress> {
        self.location.owner.map(|owner| &**owner)
    }

    /// A ConfigMap; a missing one denies the location.
    pub(super) fn required_map(
        &mut self,
        annotation: &str,
        key: &ObjectKey,
    ) -> Option<&'t Arc<ConfigMapObject>> {
        match self.view.config_map(&key.namespace, &key.name) {
            ReferencedObject::Found(object) => Some(object),
            ReferencedObject::Missing | ReferencedObject::Pending => {
                self.deny(annotation, format!("{key} does not exist"));
                None
            }
        }
    }

    /// The id of an upstream that belongs to the location's Ingress on this host.
    pub(super) fn own_upstream_id(&self, part: &str) -> String {
        let (ingress, rest) = self.location.id.split_once("!ingress!").unwrap_or((&self.location.id, "_"));
        format!("{ingress}!{part}!{rest}")
    }

    /// A text with the variables that are constant for the location replaced.
    pub(super) fn settled_text(&self, text: &NginxText, service: Option<&str>) -> NginxText {
        let mut settled = String::new();
        for part in &text.parts {
            match part {
                TextPart::Literal(literal) => settled.push_str(literal),
                TextPart::Group(number) => settled.push_str(&format!("${number}")),
                TextPart::Variable(name) => match self.constant(name, service) {
                    Some(value) => settled.push_str(&value),
                    None => settled.push_str(&format!("${{{name}}}")),
                },
            }
        }
        // The text was one before.
        NginxText::parse(&settled).unwrap_or_else(|_| text.clone())
    }

    fn constant(&self, name: &str, service: Option<&str>) -> Option<String> {
        let owner = self.location.owner?;
        match name {
            "namespace" => Some(owner.key.namespace.to_string()),
            "ingress_name" => Some(owner.key.name.to_string()),
            "service_name" => service.map(str::to_owned),
            "location_path" => Some(self.location.path.to_string()),
            _ => None,
        }
    }
}

/// The name of an annotation with its prefix.
pub(super) fn annotation_path(defaults: &ControllerSettings, annotation: &str) -> String {
    format!("{}/{annotation}", defaults.policy.prefix)
}

/// The host and port of a URL with scheme, and the rest from the first slash on.
pub(super) struct UrlParts<'u> {
    pub(super) is_tls: bool,
    pub(super) host: &'u str,
    pub(super) port: u16,
    pub(super) rest: &'u str,
}

/// Splits a URL of a service; `None` if it has no host or no valid port.
pub(super) fn split_url(url: &str) -> Option<UrlParts<'_>> {
    let (scheme, after) = url.split_once("://")?;
    let is_tls = match scheme {
        "http" => false,
        "https" => true,
        _ => return None,
    };
    let at = after.find(['/', '?']).unwrap_or(after.len());
    let (authority, rest) = after.split_at(at);
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
        _ => (authority, if is_tls { 443 } else { 80 }),
    };
    let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-._[]:".contains(&byte);
    let is_valid = !host.is_empty() && host.bytes().all(is_host) && port != 0;
    is_valid.then_some(UrlParts { is_tls, host, port, rest })
}
