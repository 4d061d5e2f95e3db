//! Resources of rules: one route per match, and per Gateway whose client certificate counts.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::attach::AttachedSection;
use super::backends::{BackendPort, BackendTarget};
use super::rule::{
    BackendActions, ForwardingPlan, ReferringAction, RewritePlan, RoutedRule, RuleActions, RuleBackend,
    RuleMatch, RulePlan, RulePlugins,
};
use crate::engine::UnitOutput;
use crate::model::{ObjectKey, ObjectMeta};
use crate::resources::{ResourceName, TranslatedKind, plugin_set_name};

/// Scopes whose routes name the same upstreams.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ScopeGroup {
    /// The Gateway whose client certificate backends are shown.
    pub(super) gateway: Option<ObjectKey>,
    pub(super) scopes: Vec<Arc<str>>,
}

/// Groups the scopes of served sections. `has_policy`: whether a backend has TLS.
pub(super) fn scope_groups(sections: &[&AttachedSection], has_policy: bool) -> Vec<ScopeGroup> {
    let mut groups: Vec<ScopeGroup> = Vec::new();
    for section in sections {
        let Some(scope) = &section.scope else { continue };
        let gateway = (has_policy && section.has_client_certificate).then(|| section.gateway.clone());
        match groups.iter_mut().find(|group| group.gateway == gateway) {
            Some(group) => group.scopes.push(scope.clone()),
            None => groups.push(ScopeGroup { gateway, scopes: vec![scope.clone()] }),
        }
    }
    groups
}

/// Members that all resources of a route have.
pub(super) struct RuleWriter<'w> {
    pub(super) route: &'w ObjectKey,
    pub(super) meta: &'w ObjectMeta,
    /// The part of ids: `http` or `grpc`.
    pub(super) part: &'static str,
    pub(super) hostnames: &'w [Arc<str>],
    pub(super) groups: Vec<ScopeGroup>,
}

impl RuleWriter<'_> {
    /// Adds the resources of a rule. Returns their names.
    pub(super) fn write(
        &self,
        position: usize,
        rule: &RoutedRule,
        output: &mut UnitOutput,
    ) -> Vec<ResourceName> {
        let mut names = Vec::new();
        if let RulePlan::Forward(plan) = &rule.plan
            && let Some(RulePlugins::Set(key)) = &plan.actions.plugins
        {
            names.push(plugin_set_name(key));
        }
        for group in &self.groups {
            for (index, one) in rule.matches.iter().enumerate() {
                let name = self.resource_name(position, index, group);
                let value = self.value(rule, one, group, output);
                output.add_resource(name.kind, name.id.clone(), &value);
                names.push(name);
            }
        }
        names
    }

    fn resource_name(&self, rule: usize, index: usize, group: &ScopeGroup) -> ResourceName {
        let (namespace, name, part) = (&self.route.namespace, &self.route.name, self.part);
        let id = match &group.gateway {
            None => format!("{namespace}/{name}!{part}!{rule:02}!{index:03}"),
            Some(gateway) => {
                format!(
                    "{namespace}/{name}!{part}!{rule:02}!{index:03}!{}.{}",
                    gateway.namespace, gateway.name
                )
            }
        };
        ResourceName::new(TranslatedKind::Routes, id)
    }

    fn value(
        &self,
        rule: &RoutedRule,
        one: &RuleMatch,
        group: &ScopeGroup,
        output: &mut UnitOutput,
    ) -> Value {
        let mut members = one.members.clone();
        if let Some(name) = &rule.name {
            members.insert("name".to_owned(), (&**name).into());
        }
        if !self.hostnames.is_empty() {
            let mut seen = BTreeSet::new();
            let hosts = self.hostnames.iter().map(|host| host.to_ascii_lowercase());
            let hosts: Vec<String> = hosts.filter(|host| seen.insert(host.clone())).collect();
            members.insert("hosts".to_owned(), hosts.into());
        }
        if one.priority != 0 {
            members.insert("priority".to_owned(), one.priority.into());
        }
        let mut writer =
            PlanWriter { gateway: group.gateway.as_ref(), prefix: one.prefix.as_deref(), output };
        match &rule.plan {
            RulePlan::Forward(plan) => writer.add_plan(plan, &mut members),
            RulePlan::Refuse(status) => {
                members.insert("actions".to_owned(), json!({ "respond": { "status": status } }));
            }
        }
        members.insert("enable_websocket".to_owned(), true.into());
        let scopes: Vec<&str> = group.scopes.iter().map(|scope| &**scope).collect();
        members.insert("scopes".to_owned(), scopes.into());
        members.insert("create_time".to_owned(), self.meta.created_s.into());
        members.insert("labels".to_owned(), json!({ "origin": self.route.origin_label() }));
        members.into()
    }
}

/// Writes the treatment of requests for one match and one group of scopes.
struct PlanWriter<'p> {
    gateway: Option<&'p ObjectKey>,
    prefix: Option<&'p str>,
    output: &'p mut UnitOutput,
}

impl PlanWriter<'_> {
    fn add_plan(&mut self, plan: &ForwardingPlan, members: &mut Map<String, Value>) {
        let actions = self.actions(&plan.actions);
        if !actions.is_empty() {
            members.insert("actions".to_owned(), actions.into());
        }
        match &plan.actions.plugins {
            None => {}
            Some(RulePlugins::Set(key)) => {
                members.insert("plugin_config_id".to_owned(), (&*plugin_set_name(key).id).into());
                self.output.plugin_sets.insert(key.clone());
            }
            Some(RulePlugins::Merged(plugins)) => {
                members.insert("plugins".to_owned(), plugins.clone().into());
            }
        }
        if plan.actions.redirect.is_some() {
            return;
        }
        members.insert("backends".to_owned(), self.backends(plan));
        for (name, value) in [("retry", &plan.retry), ("session", &plan.session), ("timeout", &plan.timeout)]
        {
            if let Some(value) = value {
                members.insert(name.to_owned(), value.clone());
            }
        }
    }

    fn backends(&mut self, plan: &ForwardingPlan) -> Value {
        let total: u64 = plan.backends.iter().map(|backend| u64::from(backend.weight)).sum();
        if total == 0 {
            return json!([{ "weight": 1, "status": plan.empty_status }]);
        }
        plan.backends.iter().map(|backend| self.backend(backend)).collect()
    }

    fn backend(&mut self, backend: &RuleBackend) -> Value {
        let mut members = Map::new();
        members.insert("weight".to_owned(), backend.weight.into());
        match &backend.target {
            BackendTarget::Port(port) => {
                members.insert("upstream_id".to_owned(), self.upstream(port));
                let mut edits = Map::new();
                self.add_edits(&backend.edits, &mut edits);
                if !edits.is_empty() {
                    members.insert("actions".to_owned(), edits.into());
                }
            }
            BackendTarget::Status(status) => {
                members.insert("status".to_owned(), (*status).into());
            }
        }
        members.into()
    }

    fn actions(&mut self, actions: &RuleActions) -> Map<String, Value> {
        let mut members = Map::new();
        if let Some(redirect) = &actions.redirect {
            let mut written = redirect.members.clone();
            if let Some(path) = &redirect.path {
                written.insert("path".to_owned(), path.value(self.prefix));
            }
            members.insert("redirect".to_owned(), written.into());
        }
        if let Some(cors) = &actions.cors {
            members.insert("cors".to_owned(), cors.clone());
        }
        if let Some(auth) = &actions.external_auth {
            members.insert("external_auth".to_owned(), self.referring(auth));
        }
        self.add_edits(&actions.edits, &mut members);
        if !actions.mirrors.is_empty() {
            let mirrors: Value = actions.mirrors.iter().map(|mirror| self.referring(mirror)).collect();
            members.insert("mirrors".to_owned(), mirrors);
        }
        members
    }

    fn add_edits(&self, edits: &BackendActions, members: &mut Map<String, Value>) {
        if let Some(fields) = &edits.request_fields {
            members.insert("request_fields".to_owned(), fields.clone());
        }
        if let Some(rewrite) = &edits.rewrite {
            members.insert("rewrite".to_owned(), self.rewrite(rewrite));
        }
        if let Some(fields) = &edits.response_fields {
            members.insert("response_fields".to_owned(), fields.clone());
        }
    }

    fn rewrite(&self, rewrite: &RewritePlan) -> Value {
        let mut members = Map::new();
        if let Some(host) = &rewrite.host {
            members.insert("host".to_owned(), host.as_str().into());
        }
        if let Some(path) = &rewrite.path {
            members.insert("path".to_owned(), path.value(self.prefix));
        }
        members.into()
    }

    fn referring(&mut self, action: &ReferringAction) -> Value {
        let mut members = Map::new();
        members.insert("upstream_id".to_owned(), self.upstream(&action.port));
        members.extend(action.members.clone());
        members.into()
    }

    fn upstream(&mut self, port: &BackendPort) -> Value {
        let key = port.upstream(self.gateway);
        let id = key.to_string();
        self.output.upstreams.insert(key);
        id.into()
    }
}
