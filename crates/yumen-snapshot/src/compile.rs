//! Resources in, immutable snapshot and problems out. Total, without I/O, and as cheap as the change.
//!
//! An object is *staged* from its text alone, then *linked* with what it refers to. A text that cannot
//! be staged leaves the last good version in force; a link that cannot be made heals when its target
//! appears.

mod certificate;
mod consumer;
mod discovered;
mod findings;
mod further;
mod global;
mod judge;
mod missing;
mod names;
mod objects;
mod plugins;
mod protection;
mod quarantine;
mod references;
mod refusal;
mod resolved;
mod route;
mod settings;
mod stream;
#[cfg(test)]
mod tests;
mod unknown;
mod upstream;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Arc, Weak};

use foldhash::fast::RandomState;
use serde_json::Value;
use yumen_base::Problem;
use yumen_config::resource as config;
use yumen_config::{Invalid, Kind, Resource, decode};
use yumen_plugin::kind::NodeFacts;
use yumen_plugin::{Carry, Chain, Consumers, MissingPlugins, Registry};

use crate::balance::UpstreamState;
use crate::protection::Gate;
use crate::router::{RequestRules, Router};
use crate::snapshot::{Certificates, Snapshot, Upstreams};
use crate::streams::StreamRouter;
use crate::upstream::{Keepalive, Timeouts, UpstreamTls};
use certificate::SslHeld;
use consumer::{Claims, ConsumerHeld, CredentialHeld};
use discovered::Discovered;
use findings::set_problems;
use names::{Dependents, Name, Ranked};
use objects::Bindings;
use plugins::PluginSet;
use quarantine::Fate;
use resolved::Wanted;
use route::{RouteHeld, ServiceHeld};
use stream::StreamHeld;
use upstream::Links;

pub use certificate::{ClientRules, HandshakeRules, LoadTls, Loaded, PairFlaw};
pub use discovered::{Found, Service};
pub use judge::{Flaw, Judge};
pub use references::{Variables, meaning};
pub use settings::{PluginFlaw, meta_schema};

/// Loads certificates, for the door that speaks TLS.
pub type LoadCertificate = Arc<dyn LoadTls>;

/// What upstreams use where they do not say.
#[derive(Debug, Clone, Copy)]
pub struct Defaults {
    /// Bounds of one attempt.
    pub timeouts: Timeouts,
    /// Bounds of idle connections.
    pub keepalive: Keepalive,
}

impl Default for Defaults {
    fn default() -> Self {
        Defaults {
            timeouts: Timeouts { connect_ms: 60_000, send_ms: 60_000, read_ms: 60_000, total_ms: 0 },
            keepalive: Keepalive { size: 320, idle_timeout_ms: 60_000, requests: 1000 },
        }
    }
}

/// What compiling depends on beside the resources.
#[derive(Clone)]
pub struct Env {
    /// Facts for plugins.
    pub node: NodeFacts,
    /// What upstreams use where they do not say.
    pub defaults: Defaults,
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
pub enum Change {
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
    Discovered(Arc<Service>, Found),
}

/// What a compilation gave.
pub struct Compiled {
    /// The snapshot.
    pub snapshot: Arc<Snapshot>,
    /// The findings about the objects that changed and those that depend on them.
    pub problems: Vec<Problem>,
}

type Table<T> = HashMap<Arc<str>, T, RandomState>;
type Staged = Result<Vec<Problem>, Vec<Problem>>;
type SetOfNames = BTreeSet<Name>;
/// Authentication plugin and key.
type KeyName = (&'static str, Box<[u8]>);

/// Holds what was compiled and compiles changes of it.
pub struct Compiler {
    registry: Arc<Registry>,
    carry: Arc<Carry>,
    env: Env,
    /// What was written last, by kind and id.
    texts: BTreeMap<Kind, Table<Arc<str>>>,
    /// The last good text of objects whose text is broken.
    good: BTreeMap<Name, Arc<str>>,
    /// Texts that were in force before the process began, for the first change of their objects.
    former: BTreeMap<Name, Arc<str>>,
    routes: Table<Box<RouteHeld>>,
    streams_held: Table<StreamHeld>,
    services: Table<ServiceHeld>,
    plugin_configs: Table<PluginSet>,
    consumer_groups: Table<PluginSet>,
    global_rules: Table<PluginSet>,
    metadata: Table<Value>,
    consumers_held: Table<ConsumerHeld>,
    credentials: Table<CredentialHeld>,
    claims: HashMap<KeyName, Claims, RandomState>,
    claimed: HashMap<Name, Vec<KeyName>, RandomState>,
    duplicates: BTreeMap<(Name, &'static str), Problem>,
    ssls: Table<SslHeld>,
    sni_claims: HashMap<Box<str>, BTreeSet<Arc<str>>, RandomState>,
    /// Server names that more than one certificate claims.
    contested_snis: BTreeSet<Box<str>>,
    /// How many certificates ask clients for theirs.
    client_policies: usize,
    slots: HashMap<Name, u32, RandomState>,
    free_slots: Vec<u32>,
    upstream_links: HashMap<Name, Links, RandomState>,
    hosts: BTreeMap<Box<str>, Wanted>,
    /// Host names that somebody has ceased to want since the last change ended.
    released: Vec<Box<str>>,
    resolved: HashMap<Box<str>, Box<[IpAddr]>, RandomState>,
    unresolved: BTreeSet<Box<str>>,
    discovered: Discovered,
    dependents: Dependents,
    /// What plugins are made of beside their settings.
    bindings: Bindings,
    /// Findings of staging and of linking.
    staged_problems: BTreeMap<Name, Vec<Problem>>,
    linked_problems: BTreeMap<Name, Vec<Problem>>,
    /// Objects whose findings may have changed.
    touched: SetOfNames,
    /// Changes since unused names of carried state were forgotten.
    unswept: usize,
    /// Counts changes of anything but endpoints.
    chains: u64,
    /// Counts changes of what is asked for.
    wants: u64,
    empty_chain: Arc<Chain>,
    plain_tls: Arc<UpstreamTls>,
    no_turns: Arc<UpstreamState>,
    /// Where those wait who are called when the next snapshot is published.
    recalled: Vec<Weak<Gate>>,
    // What snapshots share.
    router: Router,
    streams: StreamRouter,
    upstreams: Upstreams,
    certificates: Certificates,
    consumers: Consumers,
    global: Arc<Chain>,
}

/// A refused object as a problem.
fn invalid(name: &Name, error: Invalid) -> Problem {
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
    pub fn new(registry: Arc<Registry>, carry: Arc<Carry>, env: Env) -> Compiler {
        Compiler {
            registry,
            carry,
            router: Router::new(env.path_parameters),
            env,
            texts: BTreeMap::new(),
            good: BTreeMap::new(),
            former: BTreeMap::new(),
            routes: Table::default(),
            streams_held: Table::default(),
            services: Table::default(),
            plugin_configs: Table::default(),
            consumer_groups: Table::default(),
            global_rules: Table::default(),
            metadata: Table::default(),
            consumers_held: Table::default(),
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
            discovered: Discovered::default(),
            dependents: Dependents::default(),
            bindings: Bindings::default(),
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
            consumers: Consumers::default(),
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
        let named = former.into_iter().map(|one| (Name::new(one.kind, one.id), one.json));
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
    pub fn apply(&mut self, changes: Vec<Change>, revision: u64) -> Compiled {
        let amount = changes.len();
        let mut staging: BTreeMap<Ranked, Option<Arc<str>>> = BTreeMap::new();
        let mut rebuild = SetOfNames::new();
        self.touched.clear();
        for change in changes {
            match change {
                Change::Put(resource) => {
                    staging.insert(Name::new(resource.kind, resource.id).into(), Some(resource.json));
                }
                Change::Delete(kind, id) => drop(staging.insert(Name::new(kind, id).into(), None)),
                Change::Resolved { host, addrs } => self.resolve(host, addrs, &mut rebuild),
                Change::Discovered(service, found) => {
                    self.discovered.take(&service, found, &mut self.touched, &mut rebuild);
                }
            }
        }
        let mut link: BTreeSet<Ranked> = BTreeSet::new();
        let is_endpoints = |ranked: &Ranked| ranked.name.kind == Kind::Upstreams;
        let mut is_more = !staging.keys().all(is_endpoints);
        for (ranked, json) in staging {
            self.stage_one(ranked.name, json, &mut link);
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
        self.let_go();
        self.chains += u64::from(is_more);
        self.sweep(amount);
        let touched = std::mem::take(&mut self.touched);
        let problems = touched.iter().flat_map(|name| self.problems_of(name)).collect();
        Compiled { snapshot: Arc::new(self.snapshot(revision)), problems }
    }

    /// Compiles a whole set of resources: what is held and not among them is deleted, what is held
    /// with the same text is left alone.
    pub fn replace_all(&mut self, resources: Vec<Resource>, revision: u64) -> Compiled {
        let changes = self.diff(resources);
        self.apply(changes, revision)
    }

    /// What [`Compiler::replace_all`] would apply: for doors that bring whole tables.
    pub fn diff(&self, resources: Vec<Resource>) -> Vec<Change> {
        let held = |one: &Resource| self.texts.get(&one.kind).and_then(|texts| texts.get(&one.id));
        let kept = resources.iter().filter(|one| held(one).is_some()).count();
        let mut changes = Vec::new();
        if kept < self.texts.values().map(Table::len).sum() {
            let named: HashSet<(Kind, &str)> = resources.iter().map(|one| (one.kind, &*one.id)).collect();
            for (kind, texts) in &self.texts {
                let missing = texts.keys().filter(|id| !named.contains(&(*kind, id)));
                changes.extend(missing.map(|id| Change::Delete(*kind, Box::from(&**id))));
            }
        }
        let differs = |one: &Resource| held(one).is_none_or(|text| **text != *one.json);
        changes.extend(resources.into_iter().filter(differs).map(Change::Put));
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
    fn good_text(&self, name: &Name) -> Option<Arc<str>> {
        let written = || self.texts.get(&name.kind)?.get(&name.id);
        self.good.get(name).or_else(written).cloned()
    }

    fn stage_one(&mut self, name: Name, json: Option<Arc<str>>, link: &mut BTreeSet<Ranked>) {
        self.touched.insert(name.clone());
        let was_there = self.slots.contains_key(&name);
        match json {
            Some(json) => self.put(&name, json),
            None => self.delete(&name),
        }
        let dependents: Vec<Name> = self.dependents.of(&name).cloned().collect();
        match name.kind {
            // Plugins are built from their metadata, upstreams from certificates: staged again from
            // their text, which may have been broken for want of just this.
            Kind::PluginMetadata | Kind::Ssls => {
                for dependent in dependents {
                    if self.bindings.inline(&dependent).is_some() {
                        let problem = self.rebuild_upstream(&dependent).err();
                        set_problems(&mut self.staged_problems, &dependent, problem.into_iter().collect());
                        self.touched.insert(dependent);
                        continue;
                    }
                    let text = self.texts.get(&dependent.kind).and_then(|texts| texts.get(&dependent.id));
                    if let Some(json) = text.cloned() {
                        self.stage_one(dependent, Some(json), link);
                    }
                }
            }
            // Whoever names an upstream knows its slot: only its coming and going matters to them.
            Kind::Upstreams if was_there == self.slots.contains_key(&name) => {}
            _ => link.extend(dependents.into_iter().map(Ranked::from)),
        }
        let comes_or_goes = name.kind == Kind::Upstreams && was_there != self.slots.contains_key(&name);
        if comes_or_goes || name.kind == Kind::Protos {
            self.stage_users(&name, link);
        }
        link.insert(name.into());
    }

    /// Notes what a broken text refers to, so that it is staged again when that appears.
    fn note_hopes(&mut self, name: &Name, json: &str) {
        let Ok(written) = serde_json::from_str::<Value>(json) else { return };
        let plugins = written.get("plugins").and_then(Value::as_object);
        for plugin in plugins.into_iter().flat_map(|plugins| plugins.keys()) {
            self.dependents.add(Name::new(Kind::PluginMetadata, plugin.as_str()), name);
        }
        for path in ["/tls/client_cert_id", "/upstream/tls/client_cert_id"] {
            let id = match written.pointer(path) {
                Some(Value::String(id)) => id.clone(),
                Some(Value::Number(id)) => id.to_string(),
                _ => continue,
            };
            self.dependents.add(Name::new(Kind::Ssls, id), name);
        }
    }

    fn put(&mut self, name: &Name, json: Arc<str>) {
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
            Err(problems) => self.quarantine(name, &json, Fate::of(name, &json, before), problems),
        };
        self.texts.entry(name.kind).or_default().insert(name.id.clone(), json);
        set_problems(&mut self.staged_problems, name, problems);
    }

    fn delete(&mut self, name: &Name) {
        if let Some(texts) = self.texts.get_mut(&name.kind) {
            texts.remove(&name.id);
        }
        self.staged_problems.remove(name);
        self.linked_problems.remove(name);
        self.withdraw(name);
    }

    /// Takes an object out of force.
    fn withdraw(&mut self, name: &Name) {
        self.good.remove(name);
        self.unbind(name);
        match name.kind {
            Kind::Routes => self.remove_route(name),
            Kind::Services => self.remove_service(name),
            Kind::Upstreams => self.remove_upstream(name),
            Kind::Consumers => self.remove_consumer(name),
            Kind::Credentials => self.remove_credential(name),
            Kind::ConsumerGroups | Kind::PluginConfigs | Kind::GlobalRules => self.remove_set(name),
            Kind::PluginMetadata => drop(self.metadata.remove(&name.id)),
            Kind::Ssls => self.remove_ssl(name),
            Kind::StreamRoutes => self.remove_stream(name),
            Kind::Protos => self.bindings.remove_proto(&name.id),
            Kind::Secrets | Kind::Tests => {}
        }
    }

    /// Understands a text. Where it cannot, nothing held is changed.
    fn stage(&mut self, name: &Name, json: &str) -> Staged {
        let defects = config::defects(json);
        if !defects.is_empty() {
            return Err(defects.into_iter().map(|defect| quarantine::told(name, defect)).collect());
        }
        let refused = |error| vec![invalid(name, error)];
        match name.kind {
            Kind::Routes => self.stage_route(name, json),
            Kind::Services => self.stage_service(name, json),
            Kind::Upstreams => {
                let written: config::Upstream = decode(json).map_err(refused)?;
                self.place_upstream(name, &written, "").map_err(|problem| vec![problem])?;
                Ok(upstream::untold(name, "proxy_protocol", Some(&written)).into_iter().collect())
            }
            Kind::Consumers => self.stage_consumer(name, json),
            Kind::Credentials => self.stage_credential(name, json),
            Kind::PluginConfigs => {
                self.stage_set(name, decode::<config::PluginConfig>(json).map_err(refused)?.plugins)
            }
            Kind::ConsumerGroups => {
                self.stage_set(name, decode::<config::ConsumerGroup>(json).map_err(refused)?.plugins)
            }
            Kind::GlobalRules => {
                self.stage_set(name, decode::<config::GlobalRule>(json).map_err(refused)?.plugins)
            }
            Kind::PluginMetadata => self.stage_metadata(name, json),
            Kind::Ssls => self.stage_ssl(name, json),
            // A test changes nothing that is served; whoever activates a snapshot runs it before.
            Kind::Tests => decode::<config::Test>(json).map(|_| Vec::new()).map_err(refused),
            Kind::StreamRoutes => self.stage_stream(name, json),
            Kind::Protos => self.stage_proto(name, json),
            Kind::Secrets => {
                let value: Value = serde_json::from_str(json).map_err(|e| refused(Invalid::from_serde(e)))?;
                config::check(name.kind, value).map_err(refused)?;
                let message = format!("{} are not served in this version", name.kind.name());
                Ok(vec![Problem::warning(name.to_string(), "", message)])
            }
        }
    }

    fn stage_metadata(&mut self, name: &Name, json: &str) -> Staged {
        let written: config::PluginMetadata = decode(json).map_err(|error| vec![invalid(name, error)])?;
        let known = self.known();
        let settings =
            judge::metadata(&known, &name.id, written).map_err(|error| vec![invalid(name, error)])?;
        self.metadata.insert(name.id.clone(), settings);
        Ok(self.unread_metadata(name).into_iter().collect())
    }

    /// Whether a good version of an object is in force.
    fn is_good(&self, name: &Name) -> bool {
        match name.kind {
            Kind::Routes => self.routes.get(&name.id).is_some_and(|held| !held.broken),
            Kind::Services => self.services.contains_key(&name.id),
            Kind::Upstreams => self.slots.contains_key(name),
            Kind::Consumers => self.consumers_held.contains_key(&name.id),
            Kind::Credentials => self.credentials.contains_key(&name.id),
            Kind::PluginConfigs => self.plugin_configs.contains_key(&name.id),
            Kind::ConsumerGroups => self.consumer_groups.contains_key(&name.id),
            Kind::GlobalRules => self.global_rules.get(&name.id).is_some_and(|set| set.is_whole),
            Kind::PluginMetadata => self.metadata.contains_key(&name.id),
            Kind::Ssls => self.ssls.get(&name.id).is_some_and(SslHeld::is_good),
            Kind::StreamRoutes => self.streams_held.get(&name.id).is_some_and(|held| !held.broken),
            Kind::Protos => self.bindings.has_proto(&name.id),
            Kind::Secrets | Kind::Tests => false,
        }
    }

    fn sets(&mut self, kind: Kind) -> Option<&mut Table<PluginSet>> {
        match kind {
            Kind::PluginConfigs => Some(&mut self.plugin_configs),
            Kind::ConsumerGroups => Some(&mut self.consumer_groups),
            Kind::GlobalRules => Some(&mut self.global_rules),
            _ => None,
        }
    }

    fn link(&mut self, name: Name, link: &mut BTreeSet<Ranked>) {
        self.touched.insert(name.clone());
        let problems = match name.kind {
            Kind::Routes => self.link_route(&name),
            Kind::StreamRoutes => self.link_stream(&name),
            Kind::Consumers => self.link_consumer(&name),
            Kind::Credentials => self.link_credential(&name),
            Kind::GlobalRules => {
                self.link_global();
                Vec::new()
            }
            _ => Vec::new(),
        };
        set_problems(&mut self.linked_problems, &name, problems);
        if matches!(name.kind, Kind::Services | Kind::Consumers) {
            link.extend(self.dependents.of(&name).cloned().map(Ranked::from));
        }
    }
}
