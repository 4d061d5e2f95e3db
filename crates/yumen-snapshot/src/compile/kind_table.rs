//! How each resource kind is compiled: one row of functions per kind.
//!
//! The match in [`KindCompiler::of`] is exhaustive, so a new kind cannot lack a row. Properties that other crates need
//! as well are in the kind's descriptor in `yumen-config`.

use serde_json::Value;
use yumen_base::Problem;
use yumen_config::resource as config;
use yumen_config::resource::{PluginRole, ResourceDefect, decode_value};
use yumen_config::{Kind, decode};
use yumen_plugin::proto::ProtoDescriptors;

use super::names::ObjectName;
use super::plugin_settings::PluginOwner;
use super::route_match::CompiledMatch;
use super::validate::{self, ObjectError, ObjectValidator};
use super::{
    Compiler, StageResult, certificate, foreign_members, invalid, native_actions, route, scope, secret_table,
    stream, suspicious_values, upstream,
};

/// The functions that compile objects of one kind.
pub(super) struct KindCompiler {
    /// Builds the object from its text alone. On an error nothing changes.
    pub(super) stage: fn(&mut Compiler, &ObjectName, &str) -> StageResult,
    /// Resolves the references of a staged object; returns the problems found.
    pub(super) link: fn(&mut Compiler, &ObjectName) -> Vec<Problem>,
    /// Takes the object out of force.
    pub(super) withdraw: fn(&mut Compiler, &ObjectName),
    /// Whether a good version of the object is in force.
    pub(super) is_good: fn(&Compiler, &ObjectName) -> bool,
    /// Puts a replacement in force for a text that was never valid; returns its effect for the hint.
    pub(super) salvage: fn(&mut Compiler, &ObjectName, &str, &[ResourceDefect]) -> String,
    /// Validates an object by its text alone, for APIs that accept single objects.
    pub(super) validate: fn(&ObjectValidator<'_>, Value) -> Result<(), ObjectError>,
    /// The effect of a change on the objects that depend on this one.
    pub(super) dependents: DependentUpdate,
}

/// The effect of a change of an object on its dependents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DependentUpdate {
    /// They are linked again.
    Link,
    /// They are linked again, also if the object itself was only linked again: they depend on its references as well.
    LinkTransitively,
    /// They are linked again if the object appeared or disappeared. Otherwise its slot still leads to it.
    LinkOnPresence,
    /// They are staged again: they were built from the object.
    Stage,
    /// They are linked again, and objects whose plugins name this one are staged again.
    StagePlugins,
    /// Their problems are computed again; nothing else of them depends on the object.
    Report,
    /// Their problems are computed again if the object appeared or disappeared.
    ReportOnPresence,
}

impl KindCompiler {
    /// The row of a kind.
    pub(super) fn of(kind: Kind) -> &'static KindCompiler {
        match kind {
            Kind::Routes => &ROUTES,
            Kind::Services => &SERVICES,
            Kind::Upstreams => &UPSTREAMS,
            Kind::Consumers => &CONSUMERS,
            Kind::Credentials => &CREDENTIALS,
            Kind::ConsumerGroups => &CONSUMER_GROUPS,
            Kind::PluginConfigs => &PLUGIN_CONFIGS,
            Kind::GlobalRules => &GLOBAL_RULES,
            Kind::PluginMetadata => &PLUGIN_METADATA,
            Kind::Ssls => &SSLS,
            Kind::Protos => &PROTOS,
            Kind::StreamRoutes => &STREAM_ROUTES,
            Kind::Listeners => &LISTENERS,
            Kind::Scopes => &SCOPES,
            Kind::Secrets => &SECRETS,
            Kind::Tests => &TESTS,
        }
    }
}

static ROUTES: KindCompiler = KindCompiler {
    stage: Compiler::stage_route,
    link: Compiler::link_route,
    withdraw: Compiler::remove_route,
    is_good: |compiler, name| compiler.routes.get(&name.id).is_some_and(|one| !one.staged.is_broken),
    salvage: |compiler, name, json, defects| {
        compiler.salvage_route(name, json, defects);
        // The predicates may be the very part that cannot be parsed.
        match compiler.routes.get(&name.id).is_some() {
            true => "matching requests are answered 503 until it is fixed".to_owned(),
            false => "matching requests go to other routes until it is fixed".to_owned(),
        }
    },
    validate: |validator, value| {
        let written = decode_value::<config::RouteSpec>(value)?;
        route::conditions(&written)?;
        CompiledMatch::of(&written)?;
        native_actions::check(&written)?;
        validator.plugins(written.plugins, PluginOwner::Traffic)
    },
    dependents: DependentUpdate::Link,
};

static SERVICES: KindCompiler = KindCompiler {
    stage: Compiler::stage_service,
    link: nothing_to_link,
    withdraw: Compiler::remove_service,
    is_good: |compiler, name| compiler.staged.services.contains_key(&name.id),
    salvage: leave_out,
    validate: |validator, value| {
        validator.plugins(decode_value::<config::ServiceSpec>(value)?.plugins, PluginOwner::Traffic)
    },
    dependents: DependentUpdate::LinkTransitively,
};

static UPSTREAMS: KindCompiler = KindCompiler {
    stage: |compiler, name, json| {
        let written: config::UpstreamSpec = decode(json).map_err(|error| vec![invalid(name, error)])?;
        compiler.assign_upstream(name, &written, "").map_err(|problem| vec![problem])?;
        let mut problems = suspicious_values::of_upstream(name, "", &written);
        problems.extend(upstream::ignored_proxy_protocol(name, "proxy_protocol", Some(&written)));
        problems.extend(upstream::unserved_scheme(name, "scheme", Some(&written)));
        Ok(problems)
    },
    link: nothing_to_link,
    withdraw: Compiler::remove_upstream,
    is_good: |compiler, name| compiler.upstreams.contains(name),
    salvage: leave_out,
    validate: |_, value| Ok(config::check(Kind::Upstreams, value)?),
    dependents: DependentUpdate::LinkOnPresence,
};

static CONSUMERS: KindCompiler = KindCompiler {
    stage: Compiler::stage_consumer,
    link: Compiler::link_consumer,
    withdraw: Compiler::remove_consumer,
    is_good: |compiler, name| compiler.staged.consumers.contains_key(&name.id),
    salvage: leave_out,
    validate: |validator, value| {
        validator.plugins(decode_value::<config::ConsumerSpec>(value)?.plugins, PluginOwner::Consumer)
    },
    dependents: DependentUpdate::LinkTransitively,
};

static CREDENTIALS: KindCompiler = KindCompiler {
    stage: Compiler::stage_credential,
    link: Compiler::link_credential,
    withdraw: Compiler::remove_credential,
    is_good: |compiler, name| compiler.staged.credentials.contains_key(&name.id),
    salvage: leave_out,
    validate: |validator, value| {
        validator.plugins(decode_value::<config::CredentialSpec>(value)?.plugins, PluginOwner::Credential)
    },
    dependents: DependentUpdate::Link,
};

static CONSUMER_GROUPS: KindCompiler = KindCompiler {
    stage: |compiler, name, json| {
        let written: config::ConsumerGroup = decode(json).map_err(|error| vec![invalid(name, error)])?;
        compiler.stage_plugin_set(name, written.plugins)
    },
    link: nothing_to_link,
    withdraw: Compiler::remove_plugin_set,
    is_good: |compiler, name| compiler.staged.consumer_groups.contains_key(&name.id),
    salvage: leave_out,
    validate: |validator, value| validator.set(decode_value::<config::ConsumerGroup>(value)?.plugins),
    dependents: DependentUpdate::Link,
};

static PLUGIN_CONFIGS: KindCompiler = KindCompiler {
    stage: |compiler, name, json| {
        let written: config::PluginConfig = decode(json).map_err(|error| vec![invalid(name, error)])?;
        compiler.stage_plugin_set(name, written.plugins)
    },
    link: nothing_to_link,
    withdraw: Compiler::remove_plugin_set,
    is_good: |compiler, name| compiler.staged.plugin_configs.contains_key(&name.id),
    salvage: leave_out,
    validate: |validator, value| validator.set(decode_value::<config::PluginConfig>(value)?.plugins),
    dependents: DependentUpdate::Link,
};

static GLOBAL_RULES: KindCompiler = KindCompiler {
    stage: |compiler, name, json| {
        let written: config::GlobalRule = decode(json).map_err(|error| vec![invalid(name, error)])?;
        let foreign = [
            ("name", written.name.is_some()),
            ("desc", written.desc.is_some()),
            ("labels", written.labels.is_some()),
        ];
        let scopes = written.scopes;
        let mut problems = compiler.stage_plugin_set(name, written.plugins)?;
        compiler.set_rule_scopes(name, scopes);
        problems.extend(foreign_members::warnings(name, foreign));
        Ok(problems)
    },
    link: |compiler, _| {
        compiler.link_global();
        Vec::new()
    },
    withdraw: Compiler::remove_plugin_set,
    is_good: |compiler, name| compiler.staged.global_rules.get(&name.id).is_some_and(|set| set.is_whole),
    salvage: Compiler::salvage_rule,
    validate: |validator, value| validator.set(decode_value::<config::GlobalRule>(value)?.plugins),
    dependents: DependentUpdate::Link,
};

static PLUGIN_METADATA: KindCompiler = KindCompiler {
    stage: Compiler::stage_metadata,
    link: nothing_to_link,
    withdraw: Compiler::withdraw_metadata,
    is_good: |compiler, name| compiler.staged.metadata.contains_key(&name.id),
    salvage: leave_out,
    validate: |validator, value| {
        let written = decode_value::<config::PluginMetadata>(value)?;
        let id = written.id.as_ref().map_or("", config::ResourceId::as_str).to_owned();
        Ok(validate::metadata(&validator.known(), &id, written).map(drop)?)
    },
    dependents: DependentUpdate::Stage,
};

static SSLS: KindCompiler = KindCompiler {
    stage: Compiler::stage_ssl,
    link: nothing_to_link,
    withdraw: Compiler::remove_certificate,
    is_good: |compiler, name| compiler.downstream.server_names.has_key(&name.id),
    salvage: |compiler, name, json, defects| {
        compiler.salvage_ssl(name, json);
        match certificate::requires_client_certificates(json) {
            true => "requests for its server names are answered 400 until it is fixed".to_owned(),
            false => leave_out(compiler, name, json, defects),
        }
    },
    validate: |validator, value| {
        let written = decode_value::<config::SslSpec>(value)?;
        Ok(certificate::load(validator.load_certificate, &validator.values(), &written).map(drop)?)
    },
    dependents: DependentUpdate::Stage,
};

static PROTOS: KindCompiler = KindCompiler {
    stage: Compiler::stage_proto,
    link: nothing_to_link,
    withdraw: |compiler, name| drop(compiler.staged.protos.remove(&name.id)),
    is_good: |compiler, name| compiler.staged.protos.contains_key(&name.id),
    salvage: leave_out,
    validate: |_, value| {
        Ok(ProtoDescriptors::compile(&decode_value::<config::ProtoSpec>(value)?.content).map(drop)?)
    },
    dependents: DependentUpdate::StagePlugins,
};

static STREAM_ROUTES: KindCompiler = KindCompiler {
    stage: Compiler::stage_stream,
    link: Compiler::link_stream,
    withdraw: Compiler::remove_stream,
    is_good: |compiler, name| compiler.stream_routes.get(&name.id).is_some_and(|one| !one.staged.is_broken),
    salvage: |compiler, name, json, defects| {
        compiler.salvage_stream(name, json, defects);
        match compiler.stream_routes.get(&name.id).is_some() {
            true => "matching connections are closed until it is fixed".to_owned(),
            false => "matching connections go to other stream routes until it is fixed".to_owned(),
        }
    },
    validate: |validator, value| {
        let written = decode_value::<config::StreamRouteSpec>(value)?;
        stream::check_matching(&written)?;
        validator.plugins(written.plugins, PluginOwner::Stream)
    },
    dependents: DependentUpdate::Link,
};

static LISTENERS: KindCompiler = KindCompiler {
    stage: Compiler::stage_listener,
    link: nothing_to_link,
    withdraw: |compiler, name| compiler.downstream.listeners.remove(&name.id),
    is_good: |compiler, name| compiler.downstream.listeners.get(&name.id).is_some(),
    salvage: leave_out,
    validate: |_, value| Ok(config::check(Kind::Listeners, value)?),
    dependents: DependentUpdate::Report,
};

static SCOPES: KindCompiler = KindCompiler {
    stage: Compiler::stage_scope,
    link: nothing_to_link,
    withdraw: Compiler::remove_scope,
    is_good: |compiler, name| {
        compiler.downstream.scopes.get(&name.id).is_some_and(|one| !one.terms.is_broken)
    },
    salvage: Compiler::salvage_scope,
    validate: |validator, value| {
        let written = decode_value::<config::ScopeSpec>(value)?;
        Ok(scope::check(validator.load_certificate, &written)?)
    },
    dependents: DependentUpdate::ReportOnPresence,
};

static SECRETS: KindCompiler = KindCompiler {
    stage: Compiler::stage_secret,
    link: nothing_to_link,
    withdraw: Compiler::remove_secret,
    is_good: Compiler::has_secret,
    salvage: leave_out,
    validate: |validator, value| Ok(secret_table::check(validator.variables, &value)?),
    // Objects are built from values that the manager gives.
    dependents: DependentUpdate::StagePlugins,
};

static TESTS: KindCompiler = KindCompiler {
    // A test changes nothing that is served. `GuardedStore` runs it before a change is stored.
    stage: |_, name, json| {
        decode::<config::Test>(json).map(|_| Vec::new()).map_err(|error| vec![invalid(name, error)])
    },
    link: nothing_to_link,
    withdraw: |_, _| {},
    is_good: |_, _| false,
    salvage: leave_out,
    validate: |_, value| Ok(config::check(Kind::Tests, value)?),
    dependents: DependentUpdate::Link,
};

/// The link function of kinds whose objects refer to nothing.
fn nothing_to_link(_: &mut Compiler, _: &ObjectName) -> Vec<Problem> {
    Vec::new()
}

/// The salvage function of kinds without a safe replacement.
fn leave_out(_: &mut Compiler, _: &ObjectName, _: &str, _: &[ResourceDefect]) -> String {
    "not active until it is fixed".to_owned()
}

impl PluginOwner {
    /// The role of objects with plugins of this role. Objects without plugins count as traffic.
    pub(super) fn of(role: PluginRole) -> PluginOwner {
        match role {
            PluginRole::Consumer => PluginOwner::Consumer,
            PluginRole::Credential => PluginOwner::Credential,
            PluginRole::Streams => PluginOwner::Stream,
            PluginRole::None | PluginRole::Requests | PluginRole::AllRequests => PluginOwner::Traffic,
        }
    }
}
