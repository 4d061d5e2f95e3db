//! Compiles resources to an immutable snapshot and problems. Total, without I/O, and as cheap as the change.
//!
//! An object is *staged* from its text alone, then *linked* with the objects that it refers to. If a text cannot be
//! staged, the last good version stays in force. A link to a missing object heals when that object appears.

mod absent_guards;
mod certificate;
mod consumer;
mod context;
mod findings;
mod foreign_members;
mod further_problems;
mod global;
mod kind_table;
mod linker;
mod listener;
mod missing_plugins;
mod misspelt_members;
mod names;
mod native_actions;
mod nested_plugins;
mod never_run;
mod plugin_bindings;
mod plugin_names;
mod plugin_sets;
mod plugin_settings;
mod plugins;
mod protection;
mod quarantine;
mod references;
mod route;
mod route_match;
mod scope;
mod secret_settings;
mod secret_table;
mod service;
mod staged_objects;
mod stream;
mod suspicious_values;
mod tables;
mod target;
#[cfg(test)]
mod tests;
mod unavailable_plugin;
mod unknown_members;
mod unknown_variables;
mod upstream;
mod validate;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use yumen_base::Problem;
use yumen_config::{InvalidSettings, Kind, Resource, RuleViolation};
use yumen_plugin::{Carry, FetchRequest, FetchedCell, PluginRegistry, SinkRegistry};

use crate::router::{RequestRules, Router};
use crate::snapshot::Snapshot;
use crate::streams::StreamRouter;
use context::CompileContext;
use global::GlobalChains;
use linker::LinkQueue;
use names::{ObjectName, RankedName};
use plugin_bindings::PluginBindings;
use route::StagedRoute;
use staged_objects::StagedObjects;
use stream::StagedStream;
use tables::{
    DownstreamTables, ExternalInputs, InputEffect, ObjectTexts, ProblemLedger, ReferenceGraph, RoutedObjects,
    ScopedConsumers, SetOfNames, UpstreamSlots,
};

pub use certificate::{
    ClientCertRules, HandshakeRules, KeyPairError, LoadCertificate, Loaded, ScopeTlsRules, TlsLoader,
};
pub use context::{CompilerEnv, ReadPluginFile, UpstreamDefaults};
pub use plugin_settings::{PluginSettingsError, meta_schema};
pub use references::{Variables, meaning};
pub use tables::{DiscoveryQuery, DiscoveryResult, FetchFailure, FetchedResult};
pub use validate::{ObjectError, ObjectValidator};

/// One change of the input of a compiler.
#[derive(Debug, Clone)]
pub enum ConfigChange {
    /// A resource is new or different.
    Put(Resource),
    /// A resource was deleted.
    Delete(Kind, Box<str>),
    /// A host name was resolved.
    Resolved {
        /// The name, as in [`Compiler::hosts`].
        host: Box<str>,
        /// The addresses. An empty list is a failed resolution: the previous addresses stay in force.
        addrs: Vec<IpAddr>,
    },
    /// Service discovery has a result for a service, as in [`Compiler::services`].
    Discovered(Arc<DiscoveryQuery>, DiscoveryResult),
    /// A fetched value, as in [`Compiler::fetches`], is new, or its fetch failed.
    Fetched(Arc<FetchRequest>, FetchedResult),
}

/// The result of a compilation.
pub struct CompileOutput {
    /// The snapshot.
    pub snapshot: Arc<Snapshot>,
    /// The problems of the objects that changed and of those that depend on them.
    pub problems: Vec<Problem>,
}

/// Warnings of an object that was staged, or the problems that keep it from that.
type StageResult = Result<Vec<Problem>, Vec<Problem>>;

/// Compiles resources to snapshots, and keeps the compiled objects for the next change.
///
/// The tables keep their own invariants; the rows of [`kind_table`] define how the objects of a kind go through them.
pub struct Compiler {
    context: CompileContext,
    texts: ObjectTexts,
    routes: RoutedObjects<Router, StagedRoute>,
    stream_routes: RoutedObjects<StreamRouter, StagedStream>,
    staged: StagedObjects,
    consumers: ScopedConsumers,
    downstream: DownstreamTables,
    upstreams: UpstreamSlots,
    inputs: ExternalInputs,
    references: ReferenceGraph,
    bindings: PluginBindings,
    problems: ProblemLedger,
    global: GlobalChains,
    /// Counts changes of anything but endpoints.
    chain_generation: u64,
    /// Changes since unused names of carried state were removed.
    unswept_changes: usize,
}

/// A refused object as a problem.
fn invalid(name: &ObjectName, error: InvalidSettings) -> Problem {
    let problem = secret_settings::hide(Problem::error(name.to_string(), error.path, error.message));
    match error.violation {
        // YAML 1.1, which APISIX reads its files in, has these words for booleans.
        RuleViolation::TextForBoolean => {
            problem.hint("write true or false: yes, no, on and off are texts, in YAML as well")
        }
        RuleViolation::Other => {
            let allowed = notation(&problem).map(str::to_owned).or(error.hint);
            Problem { allowed, ..problem }
        }
    }
}

/// The notation of a value that its schema describes in terms of its own.
fn notation(problem: &Problem) -> Option<&'static str> {
    let Problem { path, message, .. } = problem;
    let is_pattern = message.contains("failed to match pattern");
    let last = path.rsplit('.').next().unwrap_or_default();
    let member = last.split('[').next().unwrap_or_default();
    let is_in_nodes = path.contains("nodes[") && member == "host";
    match member {
        "nodes"
            if message.contains("object matches none") || message.contains("wrong type: expected object") =>
        {
            Some("write an address with its weight: {\"127.0.0.1:1980\": 1}")
        }
        "headers"
            if message.contains("should match only one schema") && path.ends_with("-rewrite.headers") =>
        {
            Some("write {set: {X-Name: value}}, or add, set and remove side by side")
        }
        "host" if is_in_nodes && is_pattern => {
            Some("write a host name or an address, without protocol and port")
        }
        "host" | "hosts" | "sni" | "snis" if is_pattern => {
            Some("write a host name, such as example.com, or *.example.com")
        }
        "whitelist" | "blacklist" | "trusted_addresses"
            if message.ends_with("object matches none of the required") =>
        {
            Some("write an address or a network, such as 10.0.0.0/8")
        }
        _ => None,
    }
}

impl Compiler {
    /// The same compiler; its plugins write entries to these sinks.
    pub fn with_sinks(mut self, sinks: Arc<SinkRegistry>) -> Compiler {
        self.context.env.sinks = Some(sinks);
        self
    }

    /// The same compiler; an object without the value of its secret is refused until the value arrives. Other compilers
    /// take the reference in its place, and check the rest.
    pub fn with_secrets(mut self) -> Compiler {
        self.context.secrets.require_values();
        self
    }

    /// The same compiler; its plugins read the files that their settings name.
    pub fn with_files(mut self, read: ReadPluginFile) -> Compiler {
        self.context.read_file = Some(read);
        self
    }

    /// The same compiler; its snapshots explain requests by these rules.
    pub fn with_request_rules(mut self, rules: RequestRules) -> Compiler {
        self.routes.table_mut().rules = rules;
        self
    }

    /// A compiler without objects.
    pub fn new(registry: Arc<PluginRegistry>, carry: Arc<Carry>, env: CompilerEnv) -> Compiler {
        Compiler {
            routes: RoutedObjects::new(Router::new(env.path_parameters)),
            downstream: DownstreamTables::new(env.fetched.clone()),
            context: CompileContext::new(registry, carry, env),
            texts: ObjectTexts::default(),
            stream_routes: RoutedObjects::new(StreamRouter::default()),
            staged: StagedObjects::default(),
            consumers: ScopedConsumers::default(),
            upstreams: UpstreamSlots::default(),
            inputs: ExternalInputs::default(),
            references: ReferenceGraph::default(),
            bindings: PluginBindings::default(),
            problems: ProblemLedger::default(),
            global: GlobalChains::default(),
            chain_generation: 0,
            unswept_changes: 0,
        }
    }

    /// A compiler of the same environment, without objects and carried state.
    pub fn fresh(&self) -> Compiler {
        let CompileContext { registry, env, read_file, .. } = &self.context;
        // Trials must not change the state of the traffic: a policy test would count against real limits.
        let env = CompilerEnv { sinks: None, ..env.clone() };
        let mut fresh = Compiler::new(registry.clone(), Arc::new(Carry::default()), env);
        // Trials see the fetched values of the traffic.
        fresh.context.cells = self.context.cells.clone();
        fresh.context.read_file.clone_from(read_file);
        fresh
    }

    /// The same compiler for readers without access to the environment of the node: it reads neither values of references,
    /// which stay as written, nor files.
    pub fn isolated(mut self) -> Compiler {
        self.context.env.variables = references::awaited_variables();
        self.context.cells = Arc::default();
        self.context.read_file = None;
        self
    }

    /// Sets the texts that were in force when the predecessor process ended. An object of the next [`Compiler::apply`]
    /// whose own text is broken has this one as its last good version.
    pub fn begin_from(&mut self, former: Vec<Resource>) {
        self.texts.set_inherited(former);
    }

    /// Objects in force by their last good text, each with its broken newest text.
    pub fn last_good(&self) -> impl Iterator<Item = (Resource, &Arc<str>)> {
        self.texts.last_good()
    }

    /// The host names whose addresses are required, each with the number of the request. A name that was released and
    /// required again has another number, and its previous addresses are forgotten.
    pub fn hosts(&self) -> impl Iterator<Item = (&str, u64)> {
        self.inputs.hosts().required()
    }

    /// The services whose nodes are required, numbered likewise.
    pub fn services(&self) -> impl Iterator<Item = (&Arc<DiscoveryQuery>, u64)> {
        self.inputs.services().required()
    }

    /// The fetched values that are required, with their cells, numbered likewise.
    pub fn fetches(&self) -> impl Iterator<Item = (&Arc<FetchRequest>, &Arc<FetchedCell>, u64)> {
        self.inputs.fetched().required()
    }

    /// Grows with every change of [`Compiler::hosts`], [`Compiler::services`] or [`Compiler::fetches`].
    pub fn input_number(&self) -> u64 {
        self.inputs.generation()
    }

    /// Compiles changes into the next snapshot. Of several changes of one object the last counts; otherwise their order
    /// does not matter.
    pub fn apply(&mut self, changes: Vec<ConfigChange>, revision: u64) -> CompileOutput {
        let change_count = changes.len();
        // Sorted by the rank of kinds: objects are staged before those that refer to them.
        let mut staging: BTreeMap<RankedName, Option<Arc<str>>> = BTreeMap::new();
        let (mut outdated, mut restaged) = (SetOfNames::new(), SetOfNames::new());
        for change in changes {
            let effect = match change {
                ConfigChange::Put(resource) => {
                    let name = ObjectName::new(resource.kind, resource.id);
                    staging.insert(name.into(), Some(resource.json));
                    continue;
                }
                ConfigChange::Delete(kind, id) => {
                    staging.insert(ObjectName::new(kind, id).into(), None);
                    continue;
                }
                // Inputs are applied before the objects, so that upstreams of this change see the newest addresses.
                ConfigChange::Resolved { host, addrs } => self.inputs.resolve(host, addrs),
                ConfigChange::Discovered(service, found) => self.inputs.discover(&service, found),
                ConfigChange::Fetched(request, result) => {
                    self.context.secrets.note_result(&request, &result);
                    self.inputs.fetch(&request, result)
                }
            };
            let InputEffect { reported, outdated: owners, restaged: users, withdrawn } = effect;
            withdrawn.iter().for_each(|name| self.withdraw(name));
            self.problems.touch_all(reported);
            outdated.extend(owners);
            restaged.extend(users);
        }
        for name in restaged {
            // The newest text, which may have been broken for lack of the value. A text of this change is staged anyway.
            if let Some(json) = self.texts.newest(&name).cloned() {
                staging.entry(name.into()).or_insert(Some(json));
            }
        }
        // A change of upstreams alone leaves every chain, and so everything derived from chains, as it is.
        let is_endpoints = |name: &ObjectName| name.kind == Kind::Upstreams;
        let mut changes_chains = !staging.keys().all(|ranked| is_endpoints(&ranked.name));
        let mut queue = LinkQueue::default();
        for (ranked, json) in staging {
            self.stage_object(ranked.name, json, &mut queue);
        }
        for owner in outdated {
            if let Err(problem) = self.rebuild_upstream(&owner) {
                // The version in force stays; only the problem changes.
                self.problems.set_staging(&owner, vec![problem]);
            }
            self.problems.touch(owner);
        }
        // The texts of the predecessor count for the first compilation only.
        self.texts.clear_inherited();
        // Linking may queue more objects, but only of kinds that come later, so the loop ends.
        while let Some(name) = queue.pop() {
            changes_chains |= !is_endpoints(&name);
            self.link(name, &mut queue);
        }
        // Not earlier: an object that replaced another one in this change uses the inputs of that object.
        self.inputs.remove_unused();
        for removed in self.inputs.take_removed_fetches() {
            self.context.secrets.forget(&removed);
        }
        self.chain_generation += u64::from(changes_chains);
        self.sweep(change_count);
        // Only objects that this change concerns are reported, so the cost follows the change.
        let touched = self.problems.take_touched();
        let problems = touched.iter().flat_map(|name| self.problems_of(name)).collect();
        CompileOutput { snapshot: Arc::new(self.snapshot(revision)), problems }
    }

    /// Compiles a whole set of resources. Other objects are deleted; objects with the same text are left alone.
    pub fn replace_all(&mut self, resources: Vec<Resource>, revision: u64) -> CompileOutput {
        let changes = self.diff(resources);
        self.apply(changes, revision)
    }

    /// The changes that [`Compiler::replace_all`] would apply.
    pub fn diff(&self, resources: Vec<Resource>) -> Vec<ConfigChange> {
        self.texts.diff(resources)
    }

    /// Removes unused names of carried state. The sweep visits all names, so it waits until a quarter as many changes
    /// were made: a single change must not cost as much as the table is large.
    fn sweep(&mut self, changes: usize) {
        self.unswept_changes += changes;
        if self.unswept_changes * 4 > self.context.carry.len() {
            self.context.carry.sweep();
            self.unswept_changes = 0;
        }
    }
}
