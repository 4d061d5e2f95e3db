//! References between objects. Checks refer to one state, which the caller keeps unchanged.

use axum::http::StatusCode;
use serde_json::{Map, Value};
use yumen_config::Kind;
use yumen_config::resource::{DeletionRefusal, ReferenceRule, native_upstream_ids, upstreams_in};
use yumen_plugin::PluginRegistry;
use yumen_snapshot::compile::{Variables, meaning};
use yumen_store::{ResourceKey, StoreState};

use crate::index::IndexedState;
use crate::index::facts::{self, ObjectFact, id_in};
use crate::refusal::ApiRefusal;

/// Refuses an object that refers to an absent one.
pub(crate) fn check(
    state: &StoreState,
    key: &ResourceKey,
    object: &Map<String, Value>,
) -> Result<(), ApiRefusal> {
    if key.kind == Kind::Credentials {
        // The id of a credential begins with that of its consumer.
        let consumer = key.id.split('/').next().unwrap_or_default();
        if state.get(Kind::Consumers, consumer).is_none() {
            return Err(ApiRefusal::new(StatusCode::NOT_FOUND, "consumer not found"));
        }
    }
    for (_, upstream) in upstreams_in(key.kind, object) {
        check_client_certificate(state, upstream)?;
    }
    let native = native_upstream_ids(object).map(|member| (id_in(member, "upstream_id"), Kind::Upstreams));
    let required = facts::required_references().map(|(field, kind)| (id_in(object, field), kind));
    for (id, kind) in required.chain(native) {
        let Some(id) = id else { continue };
        if state.get(kind, &id).is_none() {
            let name = kind.descriptor().names.label;
            return Err(ApiRefusal::invalid(format!(
                // The message of APISIX, which checks references by requests to etcd.
                "failed to fetch {name} info by {name} id [{id}], response code: 404"
            )));
        }
    }
    check_superior(state, key, object)
}

fn check_client_certificate(state: &StoreState, upstream: &Map<String, Value>) -> Result<(), ApiRefusal> {
    let Some(id) = facts::certificate_of(upstream) else { return Ok(()) };
    let failed = |why| ApiRefusal::invalid(format!("failed to fetch ssl info by ssl id [{id}], {why}"));
    let entry = state.get(Kind::Ssls, &id).ok_or_else(|| failed("response code: 404"))?;
    let ssl: Value = serde_json::from_str(&entry.json).unwrap_or_default();
    match ssl["type"].as_str() {
        // APISIX refuses other types with this message.
        Some("client") => Ok(()),
        _ => Err(failed("wrong ssl type")),
    }
}

fn check_superior(
    state: &StoreState,
    key: &ResourceKey,
    object: &Map<String, Value>,
) -> Result<(), ApiRefusal> {
    let protocol = object.get("protocol").and_then(Value::as_object);
    let Some((protocol, id)) =
        protocol.and_then(|protocol| Some((protocol, id_in(protocol, "superior_id")?)))
    else {
        return Ok(());
    };
    if *id == *key.id {
        return Err(ApiRefusal::invalid("stream route can not set itself as superior_id"));
    }
    let absent = || ApiRefusal::invalid(format!("failed to fetch stream routes[{id}], response code: 404"));
    let entry = state.get(Kind::StreamRoutes, &id).ok_or_else(absent)?;
    let superior: Value = serde_json::from_str(&entry.json).unwrap_or_default();
    let name = |protocol: Option<&Value>| protocol.and_then(Value::as_str).unwrap_or_default().to_owned();
    let (own, other) = (name(protocol.get("name")), name(superior["protocol"].get("name")));
    match superior.get("protocol").is_some() && own != other {
        true => Err(ApiRefusal::invalid(format!(
            "protocol mismatch: subordinate protocol [{own}] does not match superior protocol [{other}]"
        ))),
        false => Ok(()),
    }
}

/// Refuses an object with a unique value of another object.
pub(crate) fn check_unique(
    registry: &PluginRegistry,
    variables: &Variables,
    known: &IndexedState,
    key: &ResourceKey,
    object: &Map<String, Value>,
) -> Result<(), ApiRefusal> {
    for fact in facts::of(registry, key.kind, object) {
        let other = known.stating(&fact).find(|other| !is_own(key, other));
        // Equal texts are found by the index; only then are references to variables resolved.
        let other = other.or_else(|| resolves_equal(variables, known, key, &fact));
        let Some(other) = other else { continue };
        let message = match &fact {
            ObjectFact::FoundBy { plugin, .. } => {
                let field = facts::key_field(registry, plugin).unwrap_or("key");
                format!("duplicate {field} of plugin {plugin} found with {}", owner(other))
            }
            ObjectFact::RunsEverywhere(plugin) => {
                format!("plugin '{plugin}' already exists in global rule with id '{}'", other.id)
            }
            ObjectFact::Uses(_) | ObjectFact::UsesInPlugin(_) | ObjectFact::LimitsGroup { .. } => continue,
        };
        return Err(ApiRefusal::invalid(message));
    }
    Ok(())
}

/// Refuses a limit whose group has other settings in another object, as APISIX does. Other sources of configuration
/// may contain it: the compiler reports it, and the limits do not share counters.
pub(crate) fn check_group(
    registry: &PluginRegistry,
    known: &IndexedState,
    key: &ResourceKey,
    object: &Map<String, Value>,
) -> Result<(), ApiRefusal> {
    for fact in facts::of(registry, key.kind, object) {
        let ObjectFact::LimitsGroup { group, settings } = fact else { continue };
        let mut others = known.limits_of(&group).filter(|(other, _)| *other != settings);
        if others.any(|(_, keys)| keys.iter().any(|other| other != key)) {
            let prefix = if key.kind.descriptor().plugins.holds_keys() { HOLDS_KEYS } else { "" };
            let plugin = facts::GROUPED;
            return Err(ApiRefusal::invalid(format!(
                "{prefix}failed to check the configuration of plugin {plugin} err: group conf mismatched"
            )));
        }
    }
    Ok(())
}

/// The prefix of errors about plugins of consumers and credentials.
const HOLDS_KEYS: &str = "invalid plugins configuration: ";

/// Another object with the same unique value after its references are resolved.
fn resolves_equal<'k>(
    variables: &Variables,
    known: &'k IndexedState,
    key: &ResourceKey,
    fact: &ObjectFact,
) -> Option<&'k ResourceKey> {
    let ObjectFact::FoundBy { plugin, value } = fact else { return None };
    let meant = meaning(value, variables)?;
    let literal = ObjectFact::FoundBy { plugin: plugin.clone(), value: meant.clone().into_owned() };
    let means_it = |written: &str| meaning(written, variables).is_some_and(|other| other == meant);
    let references = known.found_by_references(plugin).filter(|(written, _)| means_it(written));
    let mut all = known.stating(&literal).chain(references.flat_map(|(_, keys)| keys));
    all.find(|other| !is_own(key, other))
}

/// Whether two objects may share a unique value: a consumer and its credentials may.
fn is_own(key: &ResourceKey, other: &ResourceKey) -> bool {
    let is_of_consumer = || {
        let rest = other.id.strip_prefix(&*key.id);
        other.kind == Kind::Credentials && rest.is_some_and(|rest| rest.starts_with('/'))
    };
    key == other || (key.kind == Kind::Consumers && is_of_consumer())
}

fn owner(key: &ResourceKey) -> String {
    match key.id.split_once("/credentials/") {
        Some((consumer, credential)) => format!("credential: {credential} of consumer: {consumer}"),
        None => format!("consumer: {}", key.id),
    }
}

/// Refuses to delete an object that others refer to.
pub(crate) fn check_unused(known: &IndexedState, key: &ResourceKey) -> Result<(), ApiRefusal> {
    let rule = key.kind.descriptor().references.rule.as_ref();
    match rule.zip(first_user(known, key)) {
        None => Ok(()),
        Some((rule, user)) => Err(ApiRefusal::invalid(in_use_message(key.kind, rule, &user))),
    }
}

/// The message that names a user of an object.
pub(crate) fn used_by(known: &IndexedState, key: &ResourceKey) -> Option<String> {
    first_user(known, key).map(|ReferencingObject { name, id, .. }| format!("{name} [{id}]"))
}

/// Refuses a change that makes an object unusable for those that refer to it.
pub(crate) fn check_usable(
    known: &IndexedState,
    key: &ResourceKey,
    object: &Map<String, Value>,
) -> Result<(), ApiRefusal> {
    let is_shown_to_upstreams = object.get("type").and_then(Value::as_str) == Some("client");
    // Users of a certificate require its type `client`; no other change makes an object unusable.
    if key.kind != Kind::Ssls || is_shown_to_upstreams {
        return Ok(());
    }
    let Some(ReferencingObject { name, id, is_plugin }) = first_user(known, key) else { return Ok(()) };
    let plugin = if is_plugin { "plugin in " } else { "" };
    Err(ApiRefusal::invalid(format!(
        "the type of this ssl must stay client, {plugin}{name} [{id}] is still using it now"
    )))
}

/// A user of an object.
struct ReferencingObject<'k> {
    /// Its kind in messages.
    name: &'static str,
    id: &'k str,
    /// Whether a plugin of the user refers to the object.
    is_plugin: bool,
}

fn first_user<'k>(known: &'k IndexedState, key: &ResourceKey) -> Option<ReferencingObject<'k>> {
    key.kind.descriptor().references.rule.as_ref()?.users.iter().find_map(|&(kind, name)| {
        let direct = known.first_stating(&ObjectFact::Uses(key.clone()), kind);
        let plugin = known.first_stating(&ObjectFact::UsesInPlugin(key.clone()), kind);
        // The lowest id, so that the message does not depend on the kind of reference.
        let user = direct.into_iter().chain(plugin).min()?;
        Some(ReferencingObject { name, id: &user.id, is_plugin: direct != Some(user) })
    })
}

fn in_use_message(kind: Kind, rule: &ReferenceRule, user: &ReferencingObject<'_>) -> String {
    let ReferencingObject { name: user, id, is_plugin } = user;
    let DeletionRefusal { adverb, names_plugin, object } = rule.refusal;
    let plugin = if *is_plugin && names_plugin { "plugin in " } else { "" };
    let label = kind.descriptor().names.label;
    format!("can not delete this {label}{adverb}, {plugin}{user} [{id}] is still using {object}")
}
