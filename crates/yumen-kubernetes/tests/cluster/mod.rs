//! A cluster without an API server: holds objects, answers required references, creates Services, applies everything
//! at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use yumen_base::time::Now;
use yumen_config::Kind;
use yumen_kubernetes::status::{ListenerFact, RuntimeFacts, StatusDraft, finish};
use yumen_kubernetes::{
    CertificateInspector, CertificateNames, ClusterChange, ClusterKind, ClusterTranslator, DesiredObject,
    GatewayMode, IngressOptions, ObjectKey, ResourceChange, ResourceName, ReviewedObject, TranslatedKind,
    TranslationDelta, TranslationSettings, decode,
};

const NOW: Now = Now { mono_us: 0, unix_ms: 1_800_000_000_000 };

/// `kind: Settings` of a case.
pub(crate) struct CaseSettings {
    translation: TranslationSettings,
    leads: bool,
    shows_objects: bool,
    checks_schema: bool,
}

impl CaseSettings {
    /// Allows resources that the compiler will quarantine.
    #[allow(dead_code, reason = "goldens have valid objects only")]
    pub(crate) fn without_schema(self) -> CaseSettings {
        CaseSettings { checks_schema: false, ..self }
    }

    pub(crate) fn read(document: Option<&Value>) -> CaseSettings {
        let document = document.cloned().unwrap_or_default();
        let mode = match document["mode"].as_str() {
            None | Some("service") => GatewayMode::Service,
            Some("merged") => GatewayMode::Merged,
            Some("host") => GatewayMode::Host,
            Some(other) => panic!("unknown mode `{other}`"),
        };
        let mut translation = TranslationSettings { mode, ..TranslationSettings::default() };
        if let Some(kind) = document["service_type"].as_str() {
            translation.service_type = kind.into();
        }
        translation.zone = document["zone"].as_str().map(Into::into);
        let addresses = document["publish_addresses"].as_array().into_iter().flatten();
        translation.publish_addresses = addresses.filter_map(Value::as_str).map(Into::into).collect();
        let flags = document["flags"].as_array().into_iter().flatten();
        let flags: Vec<String> = flags.filter_map(Value::as_str).map(str::to_owned).collect();
        let take_over = document["take_over"] == true;
        translation.ingress = IngressOptions { take_over, ..IngressOptions::with_flags(&flags) };
        CaseSettings {
            translation,
            leads: document["leads"] != false,
            shows_objects: document["shows_objects"] == true,
            checks_schema: true,
        }
    }
}

pub(crate) struct ModelCluster {
    translator: ClusterTranslator,
    controller: Arc<str>,
    leads: bool,
    shows_objects: bool,
    checks_schema: bool,
    objects: BTreeMap<ObjectKey, Value>,
    addresses: u8,
    wanted: BTreeSet<ObjectKey>,
    state: ClusterState,
}

/// Everything that the translation has produced and not withdrawn.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ClusterState {
    resources: BTreeMap<String, String>,
    statuses: BTreeMap<ObjectKey, StatusDraft>,
    objects: BTreeMap<ObjectKey, Value>,
    problems: Vec<String>,
    wanted: BTreeSet<ObjectKey>,
}

/// The differences of one step, over all rounds until nothing changes any more.
#[derive(Default)]
struct StepChanges {
    resources: Map<String, Value>,
    statuses: Map<String, Value>,
    objects: Map<String, Value>,
    problems: Option<Value>,
}

impl ModelCluster {
    pub(crate) fn new(settings: CaseSettings) -> ModelCluster {
        let controller = settings.translation.controller_name.clone();
        ModelCluster {
            translator: ClusterTranslator::new(settings.translation, Arc::new(TextCertificates)),
            controller,
            leads: settings.leads,
            shows_objects: settings.shows_objects,
            checks_schema: settings.checks_schema,
            objects: BTreeMap::new(),
            addresses: 0,
            wanted: BTreeSet::new(),
            state: ClusterState::default(),
        }
    }

    /// Stores and deletes objects, and returns what follows.
    pub(crate) fn step(&mut self, objects: Vec<Value>, deleted: &[Value]) -> Value {
        let mut changes = Vec::new();
        for name in deleted {
            let key = key_of_name(name.as_str().expect("a name such as Gateway/shop/web"));
            assert!(self.objects.remove(&key).is_some(), "{key} does not exist");
            changes.push(ClusterChange::Delete(key));
        }
        changes.extend(objects.into_iter().map(|object| self.put(object)));
        let mut result = StepChanges::default();
        while !changes.is_empty() {
            self.review_all(&changes);
            let delta = self.translator.apply(changes, NOW);
            self.record(&delta);
            changes = self.follow(delta, &mut result);
        }
        result.into_value()
    }

    /// Reviews each object before it is applied: a review must leave no trace in the deltas.
    fn review_all(&mut self, changes: &[ClusterChange]) {
        for change in changes {
            if let ClusterChange::Put(object) = change {
                let reviewed = ReviewedObject { object: object.clone(), is_new: false };
                self.translator.review(&reviewed, NOW, &|_, _| Ok(()));
            }
        }
    }

    #[allow(dead_code, reason = "not every test binary compares states")]
    pub(crate) fn state(&self) -> &ClusterState {
        &self.state
    }

    /// The objects without their status, Services first, as a list of all kinds would have them.
    #[allow(dead_code, reason = "not every test binary starts from a list")]
    pub(crate) fn all_objects(&self) -> Vec<Value> {
        let (mut objects, services): (Vec<_>, Vec<_>) =
            self.objects.iter().partition(|(key, _)| key.kind != ClusterKind::Service);
        objects.splice(..0, services);
        let plain = |(key, object): (&ObjectKey, &Value)| {
            let mut object = object.clone();
            if !matches!(key.kind, ClusterKind::Service | ClusterKind::Pod) {
                object["status"] = Value::Null;
            }
            object
        };
        objects.into_iter().map(plain).collect()
    }

    /// Records a delta in the state.
    fn record(&mut self, delta: &TranslationDelta) {
        let state = &mut self.state;
        for change in &delta.resources {
            match change {
                ResourceChange::Put(resource) => {
                    state.resources.insert(resource.name.to_string(), resource.json.to_string());
                }
                ResourceChange::Delete(name) => {
                    let was = state.resources.remove(&name.to_string());
                    assert!(was.is_some(), "{name} is deleted without a put");
                }
            }
        }
        for (key, draft) in &delta.statuses {
            match draft {
                Some(draft) => state.statuses.insert(key.clone(), draft.clone()),
                None => state.statuses.remove(key),
            };
        }
        for desired in &delta.objects {
            match desired {
                DesiredObject::Apply(path, value) => state.objects.insert(path.key.clone(), value.clone()),
                DesiredObject::Remove(path) => state.objects.remove(&path.key),
                DesiredObject::AddFinalizer(..)
                | DesiredObject::RemoveFinalizer(..)
                | DesiredObject::Leave(_) => None,
            };
        }
        if let Some(problems) = &delta.problems {
            state.problems = problems.iter().map(ToString::to_string).collect();
        }
        if let Some(wanted) = &delta.wanted {
            state.wanted = wanted.clone();
        }
    }

    /// Stores an object as the API server would.
    fn put(&mut self, mut object: Value) -> ClusterChange {
        let metadata = object["metadata"].as_object_mut().expect("metadata");
        metadata.entry("creationTimestamp").or_insert("2026-01-01T00:00:00Z".into());
        metadata.entry("generation").or_insert(1.into());
        let uid = format!("uid-{}", metadata["name"].as_str().unwrap_or_default());
        metadata.entry("uid").or_insert(uid.into());
        if let Some(plain) = object.as_object_mut().and_then(|object| object.shift_remove("stringData")) {
            let encode = |(name, text): (&String, &Value)| {
                let text = text.as_str().unwrap_or_default();
                (name.clone(), Value::from(STANDARD.encode(text)))
            };
            object["data"] =
                plain.as_object().into_iter().flatten().map(encode).collect::<Map<_, _>>().into();
        }
        let group =
            object["apiVersion"].as_str().unwrap_or("v1").rsplit_once('/').map_or("", |(group, _)| group);
        let kind = ClusterKind::find(group, object["kind"].as_str().unwrap_or_default());
        let kind = kind.unwrap_or_else(|| panic!("unknown kind {} {}", group, object["kind"]));
        let change = decoded(kind, &object);
        if let ClusterChange::Put(decoded) = &change {
            self.objects.insert(decoded.key(), object);
        }
        change
    }

    /// Acts on a delta as the controller and the leader would, and returns the changes of objects that follow.
    fn follow(&mut self, delta: TranslationDelta, result: &mut StepChanges) -> Vec<ClusterChange> {
        let mut changes = Vec::new();
        for change in delta.resources {
            match change {
                ResourceChange::Put(resource) => {
                    let value: Value = serde_json::from_str(&resource.json).expect("resources are JSON");
                    if self.checks_schema {
                        check_schema(resource.name.kind, &resource.name.id, &value);
                    }
                    result.resources.insert(resource.name.to_string(), value);
                }
                ResourceChange::Delete(name) => {
                    result.resources.insert(name.to_string(), "deleted".into());
                }
            }
        }
        for (key, draft) in delta.statuses {
            let previous = self.translator.object(&key).and_then(|object| object.meta().status.clone());
            let previous =
                previous.map_or(Value::Null, |text| serde_json::from_str(&text).expect("a status is JSON"));
            let Some(mut object) = self.objects.get(&key).cloned() else { continue };
            let status = finish(&draft.unwrap_or_default(), &self.controller, &AllApplied, &previous, NOW);
            result.statuses.insert(key.to_string(), brief(status.clone()));
            object["status"] = status;
            changes.push(self.put(object));
        }
        for desired in delta.objects {
            match desired {
                DesiredObject::Apply(path, value) => {
                    let shown = if self.shows_objects { value.clone() } else { brief_object(&value) };
                    result.objects.insert(path.key.to_string(), shown);
                    changes.extend(self.create(&path.key, value));
                }
                DesiredObject::Remove(path) => {
                    result.objects.insert(path.key.to_string(), "removed".into());
                    self.objects.remove(&path.key);
                    changes.push(ClusterChange::Delete(path.key));
                }
                DesiredObject::AddFinalizer(path, name) => {
                    result.objects.insert(path.key.to_string(), format!("finalizer {name}").into());
                    changes.extend(self.set_finalizers(&path.key, json!([name])));
                }
                DesiredObject::RemoveFinalizer(path, _) => {
                    result.objects.insert(path.key.to_string(), "no finalizer".into());
                    changes.extend(self.set_finalizers(&path.key, json!([])));
                }
                DesiredObject::Leave(_) => {}
            }
        }
        if let Some(wanted) = delta.wanted {
            for key in wanted.difference(&self.wanted) {
                changes.push(match self.objects.get(key) {
                    Some(object) => decoded(key.kind, object),
                    None => ClusterChange::Delete(key.clone()),
                });
            }
            self.wanted = wanted;
        }
        if let Some(problems) = delta.problems {
            result.problems = Some(problems.iter().map(|problem| Value::from(problem.to_string())).collect());
        }
        changes
    }

    fn set_finalizers(&mut self, key: &ObjectKey, names: Value) -> Option<ClusterChange> {
        let mut object = self.objects.get(key)?.clone();
        object["metadata"]["finalizers"] = names;
        Some(self.put(object))
    }

    /// Creates a Service or slice that the translation asks for. A load balancer gets an address at once.
    fn create(&mut self, key: &ObjectKey, mut value: Value) -> Option<ClusterChange> {
        if !self.leads || !matches!(key.kind, ClusterKind::Service | ClusterKind::EndpointSlice) {
            return None;
        }
        if key.kind == ClusterKind::Service {
            let status = self.objects.get(key).map(|object| object["status"].clone());
            value["status"] = status.unwrap_or_else(|| {
                self.addresses += 1;
                json!({ "loadBalancer": { "ingress": [{ "ip": format!("192.0.2.{}", self.addresses) }] } })
            });
        }
        Some(self.put(value))
    }
}

/// Checks a resource against the schema of its kind, as the compiler does.
fn check_schema(kind: TranslatedKind, id: &str, value: &Value) {
    // A marked resource is broken on purpose.
    if value.get("$broken").is_some() {
        return;
    }
    let Some(kind) = kind.kind() else { panic!("no kind {}", kind.name()) };
    let mut value = value.clone();
    // The id of a consumer is its name, and metadata has members of plugins only.
    if !matches!(kind, Kind::Consumers | Kind::PluginMetadata) {
        value["id"] = id.into();
    }
    if let Err(error) = yumen_config::resource::check(kind, value.clone()) {
        panic!("{}/{id} is not valid: {error:?}: {value}", kind.name());
    }
}

fn decoded(kind: ClusterKind, object: &Value) -> ClusterChange {
    match decode(kind, object.to_string().as_bytes()) {
        Ok(decoded) => ClusterChange::Put(decoded),
        Err(error) => ClusterChange::Undecodable(error.key.clone().expect("a name"), error.message),
    }
}

impl StepChanges {
    fn into_value(self) -> Value {
        let mut members = Map::new();
        for (name, mut map) in
            [("resources", self.resources), ("statuses", self.statuses), ("objects", self.objects)]
        {
            map.sort_keys();
            if !map.is_empty() {
                members.insert(name.to_owned(), map.into());
            }
        }
        if let Some(problems) = self.problems {
            members.insert("problems".to_owned(), problems);
        }
        members.into()
    }
}

/// Conditions as `Accepted: True Accepted (message)`.
fn brief(mut status: Value) -> Value {
    match &mut status {
        Value::Object(members) => {
            for (name, member) in members.iter_mut() {
                match (name.as_str(), member.as_array()) {
                    ("supportedFeatures", Some(features)) => {
                        *member = format!("{} features", features.len()).into();
                        continue;
                    }
                    ("supportedKinds", Some(kinds)) => {
                        *member = kinds.iter().map(|kind| kind["kind"].clone()).collect();
                        continue;
                    }
                    _ => {}
                }
                let conditions = member.as_array().filter(|_| name == "conditions");
                *member = match conditions {
                    Some(conditions) => {
                        let lines = conditions.iter().map(|condition| {
                            let text = |member: &str| condition[member].as_str().unwrap_or_default();
                            let message = match text("message") {
                                "" => String::new(),
                                message => format!(" ({message})"),
                            };
                            let line = format!("{} {}{message}", text("status"), text("reason"));
                            (text("type").to_owned(), Value::from(line))
                        });
                        lines.collect::<Map<_, _>>().into()
                    }
                    None => brief(member.take()),
                };
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| *item = brief(item.take())),
        _ => {}
    }
    status
}

/// The members of an object that differ from case to case, in one line.
fn brief_object(object: &Value) -> Value {
    let list = |value: &Value, line: &dyn Fn(&Value) -> String| -> String {
        value.as_array().into_iter().flatten().map(line).collect::<Vec<_>>().join(" ")
    };
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let line = match object["kind"].as_str() {
        Some("Service") => {
            let spec = &object["spec"];
            let port = |port: &Value| format!("{}={}", text(&port["name"]), port["targetPort"]);
            format!("{} {}", text(&spec["type"]), list(&spec["ports"], &port))
        }
        Some("EndpointSlice") => list(&object["endpoints"], &|endpoint| text(&endpoint["addresses"][0])),
        _ => object.to_string(),
    };
    line.into()
}

/// The documents of a text of several.
#[allow(dead_code, reason = "not every test binary reads cases")]
pub(crate) fn documents(text: &str) -> Result<Vec<Value>, serde_yaml_ng::Error> {
    let all = serde_yaml_ng::Deserializer::from_str(text).map(Value::deserialize);
    all.filter(|document| !matches!(document, Ok(Value::Null))).collect()
}

/// Reads `Gateway/shop/web` or `GatewayClass/yumen`.
fn key_of_name(text: &str) -> ObjectKey {
    let parts: Vec<&str> = text.split('/').collect();
    let kind = ClusterKind::all().find(|kind| kind.name() == parts[0]).expect("a kind");
    match parts[..] {
        [_, name] => ObjectKey::new(kind, "", name),
        [_, namespace, name] => ObjectKey::new(kind, namespace, name),
        _ => panic!("not a name: {text}"),
    }
}

/// A process that applied everything.
struct AllApplied;

impl RuntimeFacts for AllApplied {
    fn is_applied(&self, _: &ResourceName) -> bool {
        true
    }

    fn listener(&self, _: &str) -> ListenerFact {
        ListenerFact::Open
    }

    fn defect(&self, _: &ResourceName) -> Option<String> {
        None
    }
}

/// Certificates as text: `certificate a.example.com b.example.com` with the key `key`, authorities as `authority`.
struct TextCertificates;

impl CertificateInspector for TextCertificates {
    fn pair(&self, cert: &str, key: &str) -> Result<CertificateNames, String> {
        let names = cert.strip_prefix("certificate").ok_or("no certificate in the PEM text")?;
        if key != "key" {
            return Err("the key does not fit the certificate".to_owned());
        }
        Ok(CertificateNames { dns: names.split_whitespace().map(str::to_owned).collect() })
    }

    fn authorities(&self, pem: &str) -> Result<(), String> {
        if pem.starts_with("authority") { Ok(()) } else { Err("no certificate in the PEM text".to_owned()) }
    }
}
