//! Compilation of scopes, and of the membership of other objects in them.

use std::sync::Arc;

use serde_json::{Map, Value};
use yumen_base::Problem;
use yumen_config::resource::{ClientCertMode, ResourceDefect, ScopeSpec, SslProtocol, TlsModeSpec};
use yumen_config::{InvalidSettings, Kind, decode, resource as config};

use super::certificate::{ClientCertRules, HandshakeRules, LoadCertificate, ScopeTlsRules};
use super::names::ObjectName;
use super::route::matched_by;
use super::tables::{DownstreamTables, SetOfNames, StagedScope};
use super::{Compiler, StageResult, invalid};
use crate::route::ScopeIds;
use crate::scope::{
    ANY_HOST, CompiledScopes, ListenProtocol, ScopeOfHost, ScopeSlotId, ScopeTerms, ScopeTlsMode,
    ServerNameTerms,
};

/// The fields that a broken scope is matched by.
const MATCHING_FIELDS: [&str; 4] = ["listeners", "hosts", "wildcard", "create_time"];

/// The scopes that an object belongs to, as references of it.
pub(super) fn references(scopes: &Option<Arc<ScopeIds>>) -> impl Iterator<Item = ObjectName> {
    ScopeIds::list(scopes).iter().map(|id| ObjectName::new(Kind::Scopes, id.clone()))
}

/// Whether the text of a scope, valid or not, refuses requests without a valid client certificate.
pub(super) fn requires_client_certificates(json: &str) -> bool {
    let value: Value = serde_json::from_str(json).unwrap_or_default();
    let Some(Value::Object(client)) = value.pointer("/tls/client") else { return false };
    // An unreadable mode counts as the strictest one.
    let is_lax = |mode: &Value| matches!(mode.as_str(), Some("allow_insecure_fallback" | "optional_no_ca"));
    !client.get("mode").is_some_and(is_lax)
}

/// The settings of a scope beside its hosts and listeners.
fn terms_of(
    loader: &LoadCertificate,
    id: &str,
    slot: ScopeSlotId,
    written: &ScopeSpec,
) -> Result<ScopeTerms, InvalidSettings> {
    let tls = written.tls.as_ref();
    if tls.is_some_and(|tls| tls.mode == TlsModeSpec::Passthrough) {
        return Ok(ScopeTerms { mode: ScopeTlsMode::Passthrough, ..ScopeTerms::default() });
    }
    let client = tls.and_then(|tls| tls.client.as_ref());
    let allows = |version| move |all: &Vec<SslProtocol>| all.contains(&version);
    let versions = tls.and_then(|tls| tls.versions.as_ref());
    let rules = HandshakeRules {
        versions: versions.map(|all| (allows(SslProtocol::Tls12)(all), allows(SslProtocol::Tls13)(all))),
        ciphers: tls.and_then(|tls| tls.ciphers.as_deref()),
        client: client.map(|client| ClientCertRules {
            ca: &client.ca,
            depth: client.depth,
            crl: client.crl.as_deref(),
            is_optional: client.mode != ClientCertMode::Require,
        }),
    };
    let default_certificate = tls.is_some_and(|tls| tls.default_certificate);
    let client_mode = client.map(|client| client.mode);
    let loaded = loader.scope(&ScopeTlsRules { scope: id, slot, rules, client_mode, default_certificate });
    let loaded = loaded.map_err(|(path, message)| InvalidSettings::at(path_in_scope(path), message))?;
    let any_server_name = tls.is_some_and(|tls| tls.any_server_name);
    let names = ServerNameTerms { default_certificate, any_server_name };
    Ok(ScopeTerms { client_mode, tls: Some(loaded), names, ..ScopeTerms::default() })
}

/// The path in a scope of a handshake rule, which is named by its path in an ssl object.
fn path_in_scope(path: &'static str) -> &'static str {
    match path {
        "ssl_protocols" => "tls.versions",
        "ssl_ciphers" => "tls.ciphers",
        "client.ca" => "tls.client.ca",
        "client.crl" => "tls.client.crl",
        other => other,
    }
}

/// Checks the TLS settings of a scope, for the validation of single objects.
pub(super) fn check(loader: &LoadCertificate, written: &ScopeSpec) -> Result<(), InvalidSettings> {
    terms_of(loader, "", ScopeSlotId(0), written).map(drop)
}

/// The host patterns of a scope with the scope as the listener knows it.
fn patterns(written: &ScopeSpec, slot: ScopeSlotId, mode: ScopeTlsMode) -> Box<[(Box<str>, ScopeOfHost)]> {
    let passes_through = mode == ScopeTlsMode::Passthrough;
    let pattern = |host: &str| {
        let host = host.to_ascii_lowercase();
        let scope = ScopeOfHost::new(slot, &host, written.wildcard, passes_through);
        (host.into_boxed_str(), scope)
    };
    match written.hosts.as_deref() {
        None | Some([]) => [pattern(ANY_HOST)].into(),
        Some(hosts) => hosts.iter().map(|host| pattern(host)).collect(),
    }
}

impl Compiler {
    /// Builds a scope from its text.
    pub(super) fn stage_scope(&mut self, name: &ObjectName, json: &str) -> StageResult {
        let refused = |error: InvalidSettings| vec![invalid(name, error)];
        let written: ScopeSpec = decode(json).map_err(refused)?;
        let slot = self.downstream.scopes.slot_for(&name.id);
        let terms =
            terms_of(&self.context.env.load_certificate, &name.id, slot, &written).map_err(refused)?;
        self.insert_scope(name, &written, terms);
        let versions = written.tls.iter().flat_map(|tls| tls.versions.iter().flatten());
        if versions.into_iter().any(|version| *version == SslProtocol::Tls11) {
            let message = "TLSv1.1 is obsolete (RFC 8996) and not supported";
            return Ok(vec![Problem::warning(name.to_string(), "tls.versions", message)]);
        }
        Ok(Vec::new())
    }

    /// Has a broken scope refuse its requests and handshakes, if its listeners and hosts are certain. Otherwise they
    /// would fall to a scope with a wildcard, which may have other rules.
    pub(super) fn salvage_scope(
        &mut self,
        name: &ObjectName,
        json: &str,
        defects: &[ResourceDefect],
    ) -> String {
        let readable = matched_by(name.kind, json, &MATCHING_FIELDS, defects);
        let written = readable.and_then(|mut matched: Map<String, Value>| {
            if !matched.get("create_time").is_some_and(Value::is_i64) {
                matched.remove("create_time");
            }
            config::decode_value::<ScopeSpec>(Value::Object(matched)).ok()
        });
        match written {
            Some(written) => {
                self.insert_scope(name, &written, ScopeTerms { is_broken: true, ..ScopeTerms::default() });
                "its requests are answered 503 and its TLS handshakes are refused until it is fixed"
                    .to_owned()
            }
            None => {
                self.remove_scope(name);
                "its requests go to other scopes of the listener until it is fixed".to_owned()
            }
        }
    }

    fn insert_scope(&mut self, name: &ObjectName, written: &ScopeSpec, terms: ScopeTerms) {
        self.release_hosts(name);
        let slot = self.downstream.scopes.slot_for(&name.id);
        let staged = StagedScope {
            age: (written.create_time.unwrap_or(0), name.id.clone()),
            listeners: written.listeners.iter().map(|id| id.0.clone()).collect(),
            hosts: patterns(written, slot, terms.mode),
            terms,
        };
        for listener in &staged.listeners {
            self.downstream.listeners.claim(listener, &staged.age, &staged.hosts);
            self.downstream.listeners.refresh(listener);
            self.references.add(ObjectName::new(Kind::Listeners, listener.clone()), name);
        }
        self.downstream.scopes.put(&name.id, staged);
        self.touch_rivals(name);
    }

    /// Takes a scope out of the listeners and removes its references.
    fn release_hosts(&mut self, name: &ObjectName) {
        self.touch_rivals(name);
        let Some(staged) = self.downstream.scopes.get(&name.id) else { return };
        for listener in &staged.listeners {
            self.downstream.listeners.release(listener, &staged.age, &staged.hosts);
            self.downstream.listeners.refresh(listener);
            self.references.remove(ObjectName::new(Kind::Listeners, listener.clone()), name);
        }
    }

    pub(super) fn remove_scope(&mut self, name: &ObjectName) {
        self.release_hosts(name);
        self.downstream.scopes.remove(&name.id);
    }

    /// Notes that the problems of the scopes with a host of this one may change.
    fn touch_rivals(&mut self, name: &ObjectName) {
        let Some(staged) = self.downstream.scopes.get(&name.id) else { return };
        let all = &self.downstream.listeners;
        let claims = staged.listeners.iter().flat_map(|listener| {
            staged.hosts.iter().flat_map(move |(host, _)| all.claimants(listener, host))
        });
        let rivals: SetOfNames = claims.map(|id| ObjectName::new(Kind::Scopes, id.clone())).collect();
        self.problems.touch_all(rivals);
    }

    /// The scopes by slot, for a snapshot. Only those that changed are compiled again.
    pub(super) fn compiled_scopes(&mut self) -> CompiledScopes {
        let Compiler {
            downstream: DownstreamTables { scopes, server_names, .. }, routes, stream_routes, ..
        } = self;
        scopes.touch_all(routes.take_touched());
        scopes.touch_all(stream_routes.take_touched());
        scopes.touch_all(server_names.take_touched());
        scopes.compile(|id| (routes.table_of(id), stream_routes.table_of(id), server_names.presented_in(id)))
    }

    /// Whether an object is in force, for the objects that name it.
    pub(super) fn is_present(&self, name: &ObjectName) -> bool {
        match name.kind {
            Kind::Listeners => self.downstream.listeners.get(&name.id).is_some(),
            Kind::Scopes => self.downstream.scopes.get(&name.id).is_some(),
            _ => self.upstreams.contains(name),
        }
    }

    /// The objects that name a scope or a listener which does not exist, and scopes without some of their hosts.
    pub(super) fn misplaced_objects(&self) -> impl Iterator<Item = ObjectName> {
        let named = [Kind::Scopes, Kind::Listeners].into_iter().flat_map(|kind| self.references.to(kind));
        let missing = named.filter(|(on, _)| !self.is_present(on)).map(|(_, dependent)| dependent.clone());
        let outranked =
            self.downstream.listeners.outranked().map(|id| ObjectName::new(Kind::Scopes, id.clone()));
        let scopes = self.downstream.scopes.ids().map(|id| ObjectName::new(Kind::Scopes, id.clone()));
        missing.chain(outranked).chain(scopes.filter(|name| !self.problems_of_scope(name).is_empty()))
    }

    /// The problems of an object with the scopes or listeners that it names.
    pub(super) fn problems_of_places(&self, name: &ObjectName) -> Vec<Problem> {
        let scopes = match name.kind {
            Kind::Routes => self.routes.get(&name.id).and_then(|one| one.route().scopes.clone()),
            Kind::StreamRoutes => self.stream_routes.get(&name.id).and_then(|one| one.route().scopes.clone()),
            Kind::Ssls => self.downstream.server_names.scopes_of(&name.id).cloned(),
            Kind::Scopes => return self.problems_of_scope(name),
            _ => None,
        };
        let missing = ScopeIds::list(&scopes).iter().enumerate().filter_map(|(at, id)| {
            let is_missing = self.downstream.scopes.get(id).is_none();
            let message = || format!("scope {id} does not exist or is broken");
            is_missing.then(|| {
                Problem::warning(name.to_string(), format!("scopes[{at}]"), message())
                    .hint("create or fix the scope; its listeners then serve this object")
            })
        });
        missing.collect()
    }

    fn problems_of_scope(&self, name: &ObjectName) -> Vec<Problem> {
        let Some(staged) = self.downstream.scopes.get(&name.id) else { return Vec::new() };
        let (object, mut problems) = (name.to_string(), Vec::new());
        // A scope of http and https has settings of TLS for the latter.
        let protocols = staged.listeners.iter().filter_map(|id| self.downstream.listeners.get(id));
        let is_encrypted = |protocol| matches!(protocol, ListenProtocol::Https | ListenProtocol::Tls);
        let mut protocols = protocols.map(|listener| listener.settings.protocol);
        let serves_tls = protocols.any(is_encrypted);
        for (at, id) in staged.listeners.iter().enumerate() {
            let path = format!("listeners[{at}]");
            let Some(listener) = self.downstream.listeners.get(id) else {
                let message = format!("listener {id} does not exist, is disabled, or is broken");
                let hint = "create or fix the listener; it then serves the scope";
                problems.push(Problem::warning(object.clone(), path, message).hint(hint));
                continue;
            };
            let unused = without_effect(&object, &path, id, listener.settings.protocol, staged);
            let is_shared = serves_tls && listener.settings.protocol == ListenProtocol::Http;
            problems.extend(unused.filter(|_| !is_shared));
            problems.extend(self.lost_hosts(&object, id, staged));
        }
        problems
    }

    /// The hosts of a scope that an older scope has.
    fn lost_hosts(&self, object: &str, listener: &str, staged: &StagedScope) -> Vec<Problem> {
        let (_, own) = &staged.age;
        let lost = staged.hosts.iter().enumerate().filter_map(|(at, (host, _))| {
            let winner =
                self.downstream.listeners.claimants(listener, host).next().filter(|id| *id != own)?;
            let (path, host) = match &**host {
                ANY_HOST => ("hosts".to_owned(), "requests of any other host"),
                host => (format!("hosts[{at}]"), host),
            };
            let message = format!("listener {listener} serves {host} by scopes/{winner}, which is older");
            let hint = "give each host of a listener to one scope";
            Some(Problem::error(object, path, message).hint(hint))
        });
        lost.collect()
    }
}

/// Settings of a scope without effect on a listener of this protocol.
fn without_effect(
    object: &str,
    path: &str,
    listener: &str,
    protocol: ListenProtocol,
    staged: &StagedScope,
) -> Option<Problem> {
    let has_hosts = staged.hosts.iter().any(|(host, _)| &**host != ANY_HOST);
    let has_tls = staged.terms.mode == ScopeTlsMode::Passthrough || staged.terms.client_mode.is_some();
    let (what, reason) = match protocol {
        ListenProtocol::Tcp | ListenProtocol::Udp if has_hosts => {
            ("hosts", "its connections carry no host name: no connection gets to the scope")
        }
        ListenProtocol::Http | ListenProtocol::Tcp | ListenProtocol::Udp if has_tls => {
            ("tls", "its connections are not encrypted")
        }
        _ => return None,
    };
    let message = format!("{what} has no effect on listener {listener}: {reason}");
    Some(Problem::warning(object, path, message))
}

#[cfg(test)]
mod tests;
