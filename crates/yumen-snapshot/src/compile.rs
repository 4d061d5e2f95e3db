//! Resources in, immutable snapshot and problems out. Total, without I/O, and as cheap as the change.
//!
//! An object is *staged* from its text alone, then *linked* with what it refers to. A text that cannot
//! be staged leaves the last good version in force; a link that cannot be made heals when its target
//! appears.

mod certificate;
mod consumer;
mod discovered;
mod findings;
mod global;
mod kind_table;
mod missing;
mod more_problems;
mod names;
mod objects;
mod plugins;
mod protection;
mod quarantine;
mod references;
mod resolved;
mod route;
mod settings;
mod stream;
#[cfg(test)]
mod tests;
mod unavailable_plugin;
mod unknown;
mod upstream;
mod validate;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Arc, Weak};

use foldhash::fast::RandomState;
use serde_json::Value;
use yumen_base::Problem;
use yumen_config::resource as config;
use yumen_config::{InvalidSettings, Kind, Resource, decode};
use yumen_plugin::kind::NodeFacts;
use yumen_plugin::{Carry, ConsumerIndex, MissingPlugins, PluginChain, PluginRegistry};

use crate::balance::RoundRobinState;
use crate::protection::UpstreamLimiter;
use crate::router::{RequestRules, Router};
use crate::snapshot::{Certificates, Snapshot, Upstreams};
use crate::streams::StreamRouter;
use crate::upstream::{AttemptTimeouts, KeepaliveLimits, UpstreamTls};
use certificate::StagedSsl;
use consumer::{Claims, StagedConsumer, StagedCredential};
use discovered::DiscoveredServices;
use findings::set_problems;
use kind_table::{DependentUpdate, KindCompiler};
use names::{DependencySet, ObjectName, RankedName};
use objects::PluginBindings;
use plugins::PluginSet;
use quarantine::QuarantineDecision;
use resolved::HostOwners;
use route::{StagedRoute, StagedService};
use stream::StagedStream;
use upstream::UpstreamDependencies;

pub use certificate::{ClientCertRules, HandshakeRules, KeyPairError, Loaded, TlsLoader};
pub use discovered::{DiscoveryQuery, DiscoveryResult};
pub use references::{Variables, meaning};
pub use settings::{PluginSettingsError, meta_schema};
pub use validate::{ObjectError, ObjectValidator};

/// Loads certificates, for the door that speaks TLS.
pub type LoadCertificate = Arc<dyn TlsLoader>;

/// What upstreams use where they do not say.
#[derive(Debug, Clone, Copy)]
pub struct UpstreamDefaults {
    /// Bounds of one attempt.
    pub timeouts: AttemptTimeouts,
    /// Bounds of idle connections.
    pub keepalive: KeepaliveLimits,
}

impl Default for UpstreamDefaults {
    fn default() -> Self {
        UpstreamDefaults {
            timeouts: AttemptTimeouts { connect_ms: 60_000, send_ms: 60_000, read_ms: 60_000, total_ms: 0 },
            keepalive: KeepaliveLimits { size: 320, idle_timeout_ms: 60_000, requests: 1000 },
        }
    }
}

/// What compiling depends on beside the resources.
#[derive(Clone)]
pub struct CompilerEnv {
    /// Facts for plugins.
    pub node: NodeFacts,
    /// What upstreams use where they do not say.
    pub defaults: UpstreamDefaults,
    /// Whether `:name` and `*name` segments of paths are parameters.
    pub path_parameters: bool,
    /// How many workers serve.
    pub workers: usize,
    /// Plugins that users may configure although this version does not run them: left out with a warning where that
    /// exposes nothing, else replaced by a refusal.
    pub missing: MissingPlugins,
    /// Ids of the ssl objects whose certificates the node fetches by itself: what their handshakes ask and want of
    /// clients is what the objects say that would else have been found by their names.
    pub fetched: Arc<[Box<str>]>,
    /// The environment that `$env://` in settings refers to.
    pub variables: Variables,
    /// Loads certificates.
    pub load_certificate: LoadCertificate,
}

/// One change of what is compiled.
#[derive(Debug, Clone)]
pub enum ConfigChange {
    /// A resource is new or different.
    Put(Resource),
    /// A resource is gone.
    Delete(Kind, Box<str>),
    /// A host name now has these addresses. None at all leaves those known before in force.
    Resolved {
        /// The name, as in [`Compiler::hosts`].
        host: Box<str>,
        /// Its addresses.
        addrs: Vec<IpAddr>,
    },
    /// Service discovery has something new of a service, as in [`Compiler::services`].
    Discovered(Arc<DiscoveryQuery>, DiscoveryResult),
}

/// What a compilation gave.
pub struct CompileOutput {
    /// The snapshot.
    pub snapshot: Arc<Snapshot>,
    /// The findings about the objects that changed and those that depend on them.
    pub problems: Vec<Problem>,
}

type Table<T> = HashMap<Arc<str>, T, RandomState>;
type StageResult = Result<Vec<Problem>, Vec<Problem>>;
type SetOfNames = BTreeSet<ObjectName>;
/// Authentication plugin and key.
type KeyName = (&'static str, Box<[u8]>);

/// Holds what was compiled and compiles changes of it.
pub struct Compiler {
    registry: Arc<PluginRegistry>,
    carry: Arc<Carry>,
    env: CompilerEnv,
    /// What was written last, by kind and id.
    texts: BTreeMap<Kind, Table<Arc<str>>>,
    /// The last good text of objects whose text is broken.
    good: BTreeMap<ObjectName, Arc<str>>,
    /// Texts that were in force before the process began, for the first change of their objects.
    former: BTreeMap<ObjectName, Arc<str>>,
    routes: Table<Box<StagedRoute>>,
    staged_streams: Table<StagedStream>,
    services: Table<StagedService>,
    plugin_configs: Table<PluginSet>,
    consumer_groups: Table<PluginSet>,
    global_rules: Table<PluginSet>,
    metadata: Table<Value>,
    staged_consumers: Table<StagedConsumer>,
    credentials: Table<StagedCredential>,
    claims: HashMap<KeyName, Claims, RandomState>,
    claimed: HashMap<ObjectName, Vec<KeyName>, RandomState>,
    duplicates: BTreeMap<(ObjectName, &'static str), Problem>,
    ssls: Table<StagedSsl>,
    sni_claims: HashMap<Box<str>, BTreeSet<Arc<str>>, RandomState>,
    /// Server names that more than one certificate claims.
    contested_snis: BTreeSet<Box<str>>,
    /// How many certificates ask clients for theirs.
    client_policies: usize,
    slots: HashMap<ObjectName, u32, RandomState>,
    free_slots: Vec<u32>,
    upstream_links: HashMap<ObjectName, UpstreamDependencies, RandomState>,
    hosts: BTreeMap<Box<str>, HostOwners>,
    /// Host names that somebody has ceased to want since the last change ended.
    released: Vec<Box<str>>,
    resolved: HashMap<Box<str>, Box<[IpAddr]>, RandomState>,
    unresolved: BTreeSet<Box<str>>,
    discovered: DiscoveredServices,
    dependents: DependencySet,
    /// What plugins are made of beside their settings.
    bindings: PluginBindings,
    /// Findings of staging and of linking.
    staged_problems: BTreeMap<ObjectName, Vec<Problem>>,
    linked_problems: BTreeMap<ObjectName, Vec<Problem>>,
    /// Objects whose findings may have changed.
    touched: SetOfNames,
    /// Changes since unused names of carried state were forgotten.
    unswept: usize,
    /// Counts changes of anything but endpoints.
    chains: u64,
    /// Counts changes of what is asked for.
    wants: u64,
    empty_chain: Arc<PluginChain>,
    plain_tls: Arc<UpstreamTls>,
    no_turns: Arc<RoundRobinState>,
    /// Where those wait who are called when the next snapshot is published.
    recalled: Vec<Weak<UpstreamLimiter>>,
    // What snapshots share.
    router: Router,
    streams: StreamRouter,
    upstreams: Upstreams,
    certificates: Certificates,
    consumers: ConsumerIndex,
    global: Arc<PluginChain>,
}

/// A refused object as a problem.
fn invalid(name: &ObjectName, error: InvalidSettings) -> Problem {
    advised(Problem::error(name.to_string(), error.path, error.message))
}

/// With what to write instead, where files for readers of YAML 1.1, such as that of APISIX, have a word for a boolean.
fn advised(problem: Problem) -> Problem {
    match problem.message.ends_with("expected boolean, got string") {
        true => problem.hint("write true or false: yes, no, on and off are texts, in YAML as well"),
        false => problem,
    }
}

impl Compiler {
    /// The same compiler; its snapshots explain requests by these rules.
    pub fn with_request_rules(mut self, rules: RequestRules) -> Compiler {
        self.router.rules = rules;
        self
    }

    /// A compiler that holds nothing yet.
    pub fn new(registry: Arc<PluginRegistry>, carry: Arc<Carry>, env: CompilerEnv) -> Compiler {
        Compiler {
            registry,
            carry,
            router: Router::new(env.path_parameters),
            env,
            texts: BTreeMap::new(),
            good: BTreeMap::new(),
            former: BTreeMap::new(),
            routes: Table::default(),
            staged_streams: Table::default(),
            services: Table::default(),
            plugin_configs: Table::default(),
            consumer_groups: Table::default(),
            global_rules: Table::default(),
            metadata: Table::default(),
            staged_consumers: Table::default(),
            credentials: Table::default(),
            claims: HashMap::default(),
            claimed: HashMap::default(),
            duplicates: BTreeMap::new(),
            ssls: Table::default(),
            sni_claims: HashMap::default(),
            contested_snis: BTreeSet::new(),
            client_policies: 0,
            slots: HashMap::default(),
            free_slots: Vec::new(),
            upstream_links: HashMap::default(),
            hosts: BTreeMap::new(),
            released: Vec::new(),
            resolved: HashMap::default(),
            unresolved: BTreeSet::new(),
            discovered: DiscoveredServices::default(),
            dependents: DependencySet::default(),
            bindings: PluginBindings::default(),
            staged_problems: BTreeMap::new(),
            linked_problems: BTreeMap::new(),
            touched: BTreeSet::new(),
            unswept: 0,
            chains: 0,
            wants: 0,
            empty_chain: Arc::default(),
            plain_tls: Arc::default(),
            no_turns: Arc::default(),
            recalled: Vec::new(),
            streams: StreamRouter::default(),
            upstreams: Upstreams::default(),
            certificates: Certificates::default(),
            consumers: ConsumerIndex::default(),
            global: Arc::default(),
        }
    }

    /// A compiler of the same environment that holds nothing: neither resources nor carried state.
    pub fn fresh(&self) -> Compiler {
        Compiler::new(self.registry.clone(), Arc::new(Carry::default()), self.env.clone())
    }

    /// Has objects of the next [`Compiler::apply`] begin from the text they had in force when the process before ended:
    /// where the one they have now is broken, this is their last good version.
    pub fn begin_from(&mut self, former: Vec<Resource>) {
        let named = former.into_iter().map(|one| (ObjectName::new(one.kind, one.id), one.json));
        self.former = named.collect();
    }

    /// Objects in force by their last good text, with that and the broken one they have.
    pub fn last_good(&self) -> impl Iterator<Item = (Resource, &Arc<str>)> {
        self.good.iter().filter_map(|(name, json)| {
            let written = self.texts.get(&name.kind)?.get(&name.id)?;
            Some((Resource { kind: name.kind, id: name.id.clone(), json: json.clone() }, written))
        })
    }

    /// Compiles changes into the next snapshot. Of several changes of one object the last counts;
    /// otherwise their order does not matter.
    pub fn apply(&mut self, changes: Vec<ConfigChange>, revision: u64) -> CompileOutput {
        let amount = changes.len();
        let mut staging: BTreeMap<RankedName, Option<Arc<str>>> = BTreeMap::new();
        let mut rebuild = SetOfNames::new();
        self.touched.clear();
        for change in changes {
            match change {
                ConfigChange::Put(resource) => {
                    staging.insert(ObjectName::new(resource.kind, resource.id).into(), Some(resource.json));
                }
                ConfigChange::Delete(kind, id) => {
                    drop(staging.insert(ObjectName::new(kind, id).into(), None))
                }
                ConfigChange::Resolved { host, addrs } => self.resolve(host, addrs, &mut rebuild),
                ConfigChange::Discovered(service, found) => {
                    self.discovered.take(&service, found, &mut self.touched, &mut rebuild);
                }
            }
        }
        let mut link: BTreeSet<RankedName> = BTreeSet::new();
        let is_endpoints = |ranked: &RankedName| ranked.name.kind == Kind::Upstreams;
        let mut is_more = !staging.keys().all(is_endpoints);
        for (ranked, json) in staging {
            self.stage_object(ranked.name, json, &mut link);
        }
        for owner in rebuild {
            let problems = self.rebuild_upstream(&owner).err();
            self.touched.insert(owner.clone());
            if let Some(problem) = problems {
                self.staged_problems.insert(owner, vec![problem]);
            }
        }
        self.former.clear();
        // Linking may make more objects due, but only of kinds that come later.
        while let Some(ranked) = link.pop_first() {
            is_more |= !is_endpoints(&ranked);
            self.link(ranked.name, &mut link);
        }
        self.remove_unused();
        self.chains += u64::from(is_more);
        self.sweep(amount);
        let touched = std::mem::take(&mut self.touched);
        let problems = touched.iter().flat_map(|name| self.problems_of(name)).collect();
        CompileOutput { snapshot: Arc::new(self.snapshot(revision)), problems }
    }

    /// Compiles a whole set of resources: what is held and not among them is deleted, what is held
    /// with the same text is left alone.
    pub fn replace_all(&mut self, resources: Vec<Resource>, revision: u64) -> CompileOutput {
        let changes = self.diff(resources);
        self.apply(changes, revision)
    }

    /// Changes that [`Compiler::replace_all`] would apply, for sources that provide whole tables.
    pub fn diff(&self, resources: Vec<Resource>) -> Vec<ConfigChange> {
        let held = |one: &Resource| self.texts.get(&one.kind).and_then(|texts| texts.get(&one.id));
        let kept = resources.iter().filter(|one| held(one).is_some()).count();
        let mut changes = Vec::new();
        if kept < self.texts.values().map(Table::len).sum() {
            let named: HashSet<(Kind, &str)> = resources.iter().map(|one| (one.kind, &*one.id)).collect();
            for (kind, texts) in &self.texts {
                let missing = texts.keys().filter(|id| !named.contains(&(*kind, id)));
                changes.extend(missing.map(|id| ConfigChange::Delete(*kind, Box::from(&**id))));
            }
        }
        let differs = |one: &Resource| held(one).is_none_or(|text| **text != *one.json);
        changes.extend(resources.into_iter().filter(differs).map(ConfigChange::Put));
        changes
    }

    /// Forgets unused names of carried state once in so many changes, so that a change does not cost
    /// as much as the table is large.
    fn sweep(&mut self, changes: usize) {
        self.unswept += changes;
        if self.unswept * 4 > self.carry.len() {
            self.carry.sweep();
            self.unswept = 0;
        }
    }

    fn snapshot(&mut self, revision: u64) -> Snapshot {
        Snapshot {
            revision,
            global: self.global.clone(),
            consumers: self.consumers.clone(),
            router: self.router.clone(),
            streams: self.streams.clone(),
            upstreams: self.upstreams.clone(),
            certificates: self.shown_certificates(),
            asks_clients: self.client_policies > 0,
            chains: self.chains,
            no_rules: self.empty_chain.clone(),
            recalled: std::mem::take(&mut self.recalled).into(),
        }
    }

    /// The text an object's compiled form was made from.
    fn good_text(&self, name: &ObjectName) -> Option<Arc<str>> {
        let written = || self.texts.get(&name.kind)?.get(&name.id);
        self.good.get(name).or_else(written).cloned()
    }

    fn stage_object(&mut self, name: ObjectName, json: Option<Arc<str>>, link: &mut BTreeSet<RankedName>) {
        self.touched.insert(name.clone());
        let was_there = self.slots.contains_key(&name);
        match json {
            Some(json) => self.put(&name, json),
            None => self.delete(&name),
        }
        let dependents: Vec<ObjectName> = self.dependents.of(&name).cloned().collect();
        let comes_or_goes = was_there != self.slots.contains_key(&name);
        match KindCompiler::of(name.kind).dependents {
            // Plugins are built from their metadata, upstreams from certificates: staged again from
            // their text, which may have been broken for want of just this.
            DependentUpdate::Stage => self.stage_dependents(dependents, link),
            // Whoever names an upstream knows its slot: only its coming and going matters to them.
            DependentUpdate::LinkOnPresence if !comes_or_goes => {}
            DependentUpdate::LinkOnPresence | DependentUpdate::StagePlugins => {
                link.extend(dependents.into_iter().map(RankedName::from));
                self.stage_users(&name, link);
            }
            DependentUpdate::Link | DependentUpdate::LinkTransitively => {
                link.extend(dependents.into_iter().map(RankedName::from));
            }
        }
        link.insert(name.into());
    }

    fn stage_dependents(&mut self, dependents: Vec<ObjectName>, link: &mut BTreeSet<RankedName>) {
        for dependent in dependents {
            if self.bindings.inline(&dependent).is_some() {
                let problem = self.rebuild_upstream(&dependent).err();
                set_problems(&mut self.staged_problems, &dependent, problem.into_iter().collect());
                self.touched.insert(dependent);
                continue;
            }
            let text = self.texts.get(&dependent.kind).and_then(|texts| texts.get(&dependent.id));
            if let Some(json) = text.cloned() {
                self.stage_object(dependent, Some(json), link);
            }
        }
    }

    /// Notes what a broken text refers to, so that it is staged again when that appears.
    fn register_missing_references(&mut self, name: &ObjectName, json: &str) {
        let Ok(written) = serde_json::from_str::<Value>(json) else { return };
        let plugins = written.get("plugins").and_then(Value::as_object);
        for plugin in plugins.into_iter().flat_map(|plugins| plugins.keys()) {
            self.dependents.add(ObjectName::new(Kind::PluginMetadata, plugin.as_str()), name);
        }
        for path in ["/tls/client_cert_id", "/upstream/tls/client_cert_id"] {
            let id = match written.pointer(path) {
                Some(Value::String(id)) => id.clone(),
                Some(Value::Number(id)) => id.to_string(),
                _ => continue,
            };
            self.dependents.add(ObjectName::new(Kind::Ssls, id), name);
        }
    }

    fn put(&mut self, name: &ObjectName, json: Arc<str>) {
        if let Some(former) = self.former.remove(name) {
            self.put(name, former);
        }
        let before = self.good_text(name).filter(|_| self.is_good(name));
        let problems = match self.stage_with_names(name, &json) {
            Ok(mut warnings) => {
                warnings.extend(self.bind(name, true));
                self.good.remove(name);
                warnings
            }
            Err(problems) => {
                let lacks_guard = self.lacks_guard(name.kind, &json);
                let fate = QuarantineDecision::of(name, &json, before, lacks_guard);
                self.quarantine(name, &json, fate, problems)
            }
        };
        self.texts.entry(name.kind).or_default().insert(name.id.clone(), json);
        set_problems(&mut self.staged_problems, name, problems);
    }

    fn delete(&mut self, name: &ObjectName) {
        if let Some(texts) = self.texts.get_mut(&name.kind) {
            texts.remove(&name.id);
        }
        self.staged_problems.remove(name);
        self.linked_problems.remove(name);
        self.withdraw(name);
    }

    /// Takes an object out of force.
    fn withdraw(&mut self, name: &ObjectName) {
        self.good.remove(name);
        self.unbind(name);
        (KindCompiler::of(name.kind).withdraw)(self, name);
    }

    /// Understands a text. Where it cannot, nothing held is changed.
    fn stage(&mut self, name: &ObjectName, json: &str) -> StageResult {
        let defects = config::defects(json);
        if !defects.is_empty() {
            return Err(defects.into_iter().map(|defect| quarantine::told(name, defect)).collect());
        }
        (KindCompiler::of(name.kind).stage)(self, name, json)
    }

    fn stage_metadata(&mut self, name: &ObjectName, json: &str) -> StageResult {
        let written: config::PluginMetadata = decode(json).map_err(|error| vec![invalid(name, error)])?;
        let known = self.known();
        let settings =
            validate::metadata(&known, &name.id, written).map_err(|error| vec![invalid(name, error)])?;
        self.metadata.insert(name.id.clone(), settings);
        Ok(self.unread_metadata(name).into_iter().collect())
    }

    /// Whether a good version of an object is in force.
    fn is_good(&self, name: &ObjectName) -> bool {
        (KindCompiler::of(name.kind).is_good)(self, name)
    }

    fn sets(&mut self, kind: Kind) -> Option<&mut Table<PluginSet>> {
        match kind {
            Kind::PluginConfigs => Some(&mut self.plugin_configs),
            Kind::ConsumerGroups => Some(&mut self.consumer_groups),
            Kind::GlobalRules => Some(&mut self.global_rules),
            _ => None,
        }
    }

    fn link(&mut self, name: ObjectName, link: &mut BTreeSet<RankedName>) {
        self.touched.insert(name.clone());
        let row = KindCompiler::of(name.kind);
        let problems = (row.link)(self, &name);
        set_problems(&mut self.linked_problems, &name, problems);
        if row.dependents == DependentUpdate::LinkTransitively {
            link.extend(self.dependents.of(&name).cloned().map(RankedName::from));
        }
    }
}
