//! Backends of routes: references, grants, Services, ports, policies.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::attach::AttachedSection;
use crate::derived::{ConditionReason, UpstreamFlavor, UpstreamKey, UpstreamSource};
use crate::engine::{PolicyUse, TrackedView};
use crate::grants::{GrantQuestion, is_permitted};
use crate::model::{BackendReference, ClusterKind, ObjectKey, ServiceObject, ServicePortSpec};
use crate::policy::{PortTls, port_policy, traffic_policies};
use crate::upstreams::{AppProtocol, find_port};

/// Status of the share of a backend whose policy cannot be followed.
const NOT_VERIFIABLE: u16 = 503;

/// The target of a backend reference.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum BackendTarget {
    Port(BackendPort),
    /// The share is answered with a status; a stream is closed.
    Status(u16),
}

/// A port of a Service.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct BackendPort {
    namespace: Arc<str>,
    service: Arc<str>,
    port: u16,
    flavor: UpstreamFlavor,
    /// Whether a policy requires TLS, so that the certificate of the Gateway counts.
    has_policy: bool,
}

impl BackendPort {
    /// The upstream for routes of a Gateway with a client certificate, or of all other Gateways.
    pub(super) fn upstream(&self, gateway: Option<&ObjectKey>) -> UpstreamKey {
        UpstreamKey {
            namespace: self.namespace.clone(),
            service: self.service.clone(),
            port: self.port,
            flavor: self.flavor,
            source: UpstreamSource::Policies,
            gateway: gateway.filter(|_| self.has_policy).cloned(),
        }
    }
}

/// Resolves the backend references of one route, and collects the findings.
pub(super) struct BackendResolver<'r, 't> {
    pub(super) view: &'r TrackedView<'t>,
    pub(super) route: &'r ObjectKey,
    gateways: BTreeSet<ObjectKey>,
    /// The first reference that does not resolve.
    pub(super) unresolved: Option<ConditionReason>,
    pub(super) policies: BTreeSet<PolicyUse>,
    /// Whether a policy requires TLS at one of the backends.
    pub(super) has_policy: bool,
}

impl<'r, 't> BackendResolver<'r, 't> {
    pub(super) fn new(
        view: &'r TrackedView<'t>,
        route: &'r ObjectKey,
        sections: &[&AttachedSection],
    ) -> BackendResolver<'r, 't> {
        BackendResolver {
            view,
            route,
            gateways: sections.iter().map(|section| section.gateway.clone()).collect(),
            unresolved: None,
            policies: BTreeSet::new(),
            has_policy: false,
        }
    }

    /// The target of a reference. A finding is noted, and the share gets a status.
    pub(super) fn resolve(&mut self, reference: &BackendReference, flavor: UpstreamFlavor) -> BackendTarget {
        match self.try_resolve(reference, flavor) {
            Ok(target) => target,
            Err(reason) => {
                self.mark_unresolved(reason);
                BackendTarget::Status(refusal_status(flavor))
            }
        }
    }

    pub(super) fn mark_unresolved(&mut self, reason: ConditionReason) {
        self.unresolved.get_or_insert(reason);
    }

    /// Records that the route follows a policy, or that the policy loses against another one.
    pub(super) fn use_policy(&mut self, policy: &ObjectKey) {
        let uses = self
            .gateways
            .iter()
            .map(|gateway| PolicyUse { policy: policy.clone(), gateway: gateway.clone() });
        self.policies.extend(uses);
    }

    fn try_resolve(
        &mut self,
        reference: &BackendReference,
        flavor: UpstreamFlavor,
    ) -> Result<BackendTarget, ConditionReason> {
        let namespace = reference.namespace.as_ref().unwrap_or(&self.route.namespace);
        let name = format!("Service {namespace}/{}", reference.name);
        if !reference.group().is_empty() || reference.kind() != ClusterKind::Service.name() {
            let message = format!(
                "Backend {:?} has kind {}/{}; allowed: Service of the core group.",
                reference.name,
                reference.group(),
                reference.kind()
            );
            return Err(ConditionReason::new("InvalidKind", message));
        }
        self.require_grant(namespace, reference)?;
        let not_found = |message: String| ConditionReason::new("BackendNotFound", message);
        let key = ObjectKey {
            kind: ClusterKind::Service,
            namespace: namespace.clone(),
            name: reference.name.clone(),
        };
        let service = self.view.get::<ServiceObject>(&key);
        let service = service.ok_or_else(|| not_found(format!("{name} does not exist.")))?;
        // The name could be any host, such as one that only the gateway can reach (CVE-2021-25740).
        if &*service.spec.kind == "ExternalName" {
            let message = format!("{name} has type ExternalName, which is not supported as a backend.");
            return Err(ConditionReason::new("InvalidKind", message));
        }
        let number =
            reference.port.ok_or_else(|| not_found(format!("Backend {:?} has no port.", reference.name)))?;
        let is_udp = flavor == UpstreamFlavor::Udp;
        let port = find_port(service, number, is_udp).ok_or_else(|| {
            let transport = if is_udp { "UDP" } else { "TCP" };
            not_found(format!("{name} has no {transport} port {number}."))
        })?;
        check_protocol(port, flavor, &name)?;
        Ok(self.target(namespace, reference, port, flavor))
    }

    fn target(
        &mut self,
        namespace: &Arc<str>,
        reference: &BackendReference,
        port: &ServicePortSpec,
        flavor: UpstreamFlavor,
    ) -> BackendTarget {
        let mut has_policy = false;
        if !matches!(flavor, UpstreamFlavor::Sealed | UpstreamFlavor::Udp) {
            let found = port_policy(self.view, namespace, &reference.name, &port.name);
            for policy in &found.policies {
                self.use_policy(policy);
            }
            for (policy, _) in traffic_policies(self.view, namespace, &reference.name, &port.name) {
                self.use_policy(policy);
            }
            match found.tls {
                PortTls::Absent => {}
                PortTls::Verified(_) => has_policy = true,
                PortTls::Refused => return BackendTarget::Status(NOT_VERIFIABLE),
            }
        }
        self.has_policy |= has_policy;
        BackendTarget::Port(BackendPort {
            namespace: namespace.clone(),
            service: reference.name.clone(),
            port: port.port,
            flavor,
            has_policy,
        })
    }

    fn require_grant(
        &self,
        namespace: &Arc<str>,
        reference: &BackendReference,
    ) -> Result<(), ConditionReason> {
        let question = GrantQuestion {
            from: self.route.kind,
            from_namespace: &self.route.namespace,
            to_group: "",
            to_kind: ClusterKind::Service.name(),
            to_namespace: namespace,
            to_name: &reference.name,
        };
        if is_permitted(self.view, question) {
            return Ok(());
        }
        let message = format!(
            "No ReferenceGrant in namespace {namespace} permits {}s of namespace {} to refer to Service {}.",
            self.route.kind, self.route.namespace, reference.name
        );
        Err(ConditionReason::new("RefNotPermitted", message))
    }
}

/// The status of a share without a backend. A gRPC client gets 14 (UNAVAILABLE) for 503, and 2 (UNKNOWN) for 500.
pub(super) fn refusal_status(flavor: UpstreamFlavor) -> u16 {
    if flavor == UpstreamFlavor::Grpc { 503 } else { 500 }
}

/// Refuses a port whose application protocol contradicts the kind of the route.
fn check_protocol(port: &ServicePortSpec, flavor: UpstreamFlavor, name: &str) -> Result<(), ConditionReason> {
    let is_web_socket = matches!(AppProtocol::of(port), AppProtocol::WebSocket | AppProtocol::WebSocketTls);
    if flavor != UpstreamFlavor::Grpc || !is_web_socket {
        return Ok(());
    }
    let message =
        format!("Port {} of {name} has an appProtocol of WebSocket, which gRPC cannot use.", port.port);
    Err(ConditionReason::new("UnsupportedProtocol", message))
}
