//! Sections: the listeners of a Gateway and the entries of its ListenerSets, each judged by itself.

use std::sync::Arc;

use super::certificates::SectionCertificate;
use super::client_rules::ClientRules;
use crate::derived::{AllowedNamespaces, ConditionReason, SectionOutput, SectionProtocol, SectionReport};
use crate::model::{ClusterKind, GatewayListenerSpec, NamespaceChoice, ObjectKey, RouteKindSpec};
use crate::resources::ResourceName;

/// A listener in evaluation.
pub(super) struct ListenerSection<'s> {
    pub(super) parent: ObjectKey,
    pub(super) spec: &'s GatewayListenerSpec,
    pub(super) protocol: SectionProtocol,
    pub(super) hostname: Option<Arc<str>>,
    pub(super) kinds: Vec<ClusterKind>,
    pub(super) refusal: Option<ConditionReason>,
    pub(super) conflict: Option<ConditionReason>,
    pub(super) unresolved: Option<ConditionReason>,
    pub(super) overlap: Option<ConditionReason>,
    pub(super) certificates: Vec<SectionCertificate>,
    pub(super) client: Option<ClientRules>,
}

impl<'s> ListenerSection<'s> {
    pub(super) fn new(parent: &ObjectKey, spec: &'s GatewayListenerSpec) -> ListenerSection<'s> {
        let protocol = protocol_of(spec);
        let kinds = AllowedKinds::new(protocol, &spec.allowed_routes.kinds);
        // An empty host name is the API's other form of an absent one.
        let hostname = spec.hostname.as_ref().filter(|hostname| !hostname.is_empty());
        ListenerSection {
            parent: parent.clone(),
            spec,
            protocol,
            hostname: hostname.map(|hostname| hostname.to_ascii_lowercase().into()),
            kinds: kinds.kinds,
            refusal: refusal_of(spec, protocol),
            conflict: None,
            unresolved: kinds.unsupported,
            overlap: None,
            certificates: Vec::new(),
            client: None,
        }
    }

    /// Whether the section is valid by itself and beside the others.
    pub(super) fn is_valid(&self) -> bool {
        self.refusal.is_none() && self.conflict.is_none()
    }

    /// Whether the Service has the port of the section: its protocol is supported, and no other section has the port.
    pub(super) fn holds_port(&self) -> bool {
        self.protocol.listener_protocol().is_some() && self.spec.port != 0 && self.conflict.is_none()
    }

    /// Whether TLS ends here, so that the section needs a certificate.
    pub(super) fn terminates_tls(&self) -> bool {
        matches!(self.protocol, SectionProtocol::Https | SectionProtocol::TlsTerminate)
    }

    pub(super) fn is_served(&self) -> bool {
        self.is_valid() && (!self.terminates_tls() || !self.certificates.is_empty())
    }

    /// Notes the first reason why a reference does not resolve.
    pub(super) fn mark_unresolved(&mut self, reason: ConditionReason) {
        self.unresolved.get_or_insert(reason);
    }

    /// Id of the `scopes` resource. A ListenerSet may have the name of a Gateway, so its part differs.
    pub(super) fn scope_id(&self) -> Arc<str> {
        format!("{}!{}!{}", self.owner(), self.part("scope"), self.spec.name).into()
    }

    /// Id of the `ssls` resource of a certificate.
    pub(super) fn certificate_id(&self, position: usize) -> Arc<str> {
        format!("{}!{}!{}.{position:02}", self.owner(), self.part("ssl"), self.spec.name).into()
    }

    fn owner(&self) -> String {
        format!("{}/{}", self.parent.namespace, self.parent.name)
    }

    fn part(&self, part: &str) -> String {
        let of_set = if self.parent.kind == ClusterKind::ListenerSet { "set" } else { "" };
        format!("{of_set}{part}")
    }

    pub(super) fn report(&self, needs: Option<Vec<ResourceName>>) -> SectionReport {
        SectionReport {
            name: self.spec.name.clone(),
            kinds: self.kinds.clone(),
            refusal: self.refusal.clone(),
            conflict: self.conflict.clone(),
            unresolved: self.unresolved.clone(),
            overlap: self.overlap.clone(),
            needs,
        }
    }

    pub(super) fn output(&self, is_served: bool) -> SectionOutput {
        SectionOutput {
            name: self.spec.name.clone(),
            port: self.spec.port,
            protocol: self.protocol,
            hostname: self.hostname.clone(),
            kinds: self.kinds.clone(),
            namespaces: namespaces_of(&self.spec.allowed_routes.namespaces, "Same", &self.parent.namespace),
            scope: is_served.then(|| self.scope_id()),
        }
    }
}

/// Namespaces of a choice; `default` is the value of an absent `from`.
pub(super) fn namespaces_of(choice: &NamespaceChoice, default: &str, own: &Arc<str>) -> AllowedNamespaces {
    match (choice.from.as_deref().unwrap_or(default), &choice.selector) {
        ("Same", _) => AllowedNamespaces::One(own.clone()),
        ("All", _) => AllowedNamespaces::All,
        ("Selector", Some(selector)) => AllowedNamespaces::Selected(selector.clone()),
        _ => AllowedNamespaces::Nowhere,
    }
}

fn protocol_of(spec: &GatewayListenerSpec) -> SectionProtocol {
    let mode = spec.tls.as_ref().and_then(|tls| tls.mode.as_deref());
    match &*spec.protocol {
        "HTTP" => SectionProtocol::Http,
        "HTTPS" => SectionProtocol::Https,
        "TLS" if mode == Some("Passthrough") => SectionProtocol::TlsPassthrough,
        "TLS" => SectionProtocol::TlsTerminate,
        "TCP" => SectionProtocol::Tcp,
        "UDP" => SectionProtocol::Udp,
        _ => SectionProtocol::Unsupported,
    }
}

fn refusal_of(spec: &GatewayListenerSpec, protocol: SectionProtocol) -> Option<ConditionReason> {
    if protocol == SectionProtocol::Unsupported {
        let message =
            format!("Protocol {:?} is not supported; allowed: HTTP, HTTPS, TLS, TCP, UDP.", spec.protocol);
        return Some(ConditionReason::new("UnsupportedProtocol", message));
    }
    if spec.port == 0 {
        return Some(ConditionReason::new("UnsupportedValue", "The port must be from 1 to 65535."));
    }
    let mode = spec.tls.as_ref().and_then(|tls| tls.mode.as_deref()).unwrap_or("Terminate");
    let is_known = match protocol {
        SectionProtocol::Https => mode == "Terminate",
        SectionProtocol::TlsTerminate | SectionProtocol::TlsPassthrough => {
            matches!(mode, "Terminate" | "Passthrough")
        }
        _ => true,
    };
    let message = || format!("tls.mode {mode:?} is not supported with protocol {}.", spec.protocol);
    (!is_known).then(|| ConditionReason::new("UnsupportedValue", message()))
}

struct AllowedKinds {
    kinds: Vec<ClusterKind>,
    unsupported: Option<ConditionReason>,
}

impl AllowedKinds {
    fn new(protocol: SectionProtocol, requested: &[RouteKindSpec]) -> AllowedKinds {
        let supported: &[ClusterKind] = match protocol {
            SectionProtocol::Http | SectionProtocol::Https => {
                &[ClusterKind::HttpRoute, ClusterKind::GrpcRoute]
            }
            SectionProtocol::TlsTerminate | SectionProtocol::TlsPassthrough => &[ClusterKind::TlsRoute],
            SectionProtocol::Tcp => &[ClusterKind::TcpRoute],
            SectionProtocol::Udp => &[ClusterKind::UdpRoute],
            SectionProtocol::Unsupported => &[],
        };
        if requested.is_empty() || protocol == SectionProtocol::Unsupported {
            return AllowedKinds { kinds: supported.to_vec(), unsupported: None };
        }
        let (mut kinds, mut unsupported) = (Vec::new(), Vec::new());
        for wanted in requested {
            let group = wanted.group.as_deref().unwrap_or(ClusterKind::Gateway.api().group);
            match ClusterKind::find(group, &wanted.kind).filter(|kind| supported.contains(kind)) {
                Some(kind) if kinds.contains(&kind) => {}
                Some(kind) => kinds.push(kind),
                None => unsupported.push(format!("{group}/{}", wanted.kind)),
            }
        }
        let names: Vec<&str> = supported.iter().map(|kind| kind.name()).collect();
        let message = || {
            let (unsupported, names) = (unsupported.join(", "), names.join(", "));
            format!(
                "allowedRoutes.kinds has kinds that do not fit the protocol: {unsupported}; allowed: {names}."
            )
        };
        let reason = (!unsupported.is_empty()).then(|| ConditionReason::new("InvalidRouteKinds", message()));
        AllowedKinds { kinds, unsupported: reason }
    }
}
