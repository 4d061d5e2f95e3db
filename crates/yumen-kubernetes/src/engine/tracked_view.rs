//! The view through which units read. Each read is recorded.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::Arc;

use yumen_base::time::Now;

use super::object_table::ObjectTable;
use super::output::DerivedOutput;
use super::output_tables::OutputTables;
use super::read_key::{IndexKey, ReadKey};
use super::scheduler::TranslationContext;
use super::unit::TranslationUnit;
use crate::certificates::CertificateInspector;
use crate::derived::{
    GatewayReport, IngressGroup, IngressMember, ParentOutput, ParsedIngress, PolicyOutput,
    RouteKindConflicts, SectionKey, SharedPortTable, StreamRouteCandidate,
};
use crate::ingress_nginx::ControllerSettings;
use crate::model::{
    ClusterKind, ConfigMapObject, LabelMap, LeanObject, NamespaceObject, ObjectKey, SecretObject,
};
use crate::ports::PortClaim;
use crate::settings::TranslationSettings;

/// Everything that a unit may read.
pub(crate) struct TrackedView<'t> {
    objects: &'t ObjectTable,
    tables: &'t OutputTables,
    context: &'t TranslationContext,
    now: Now,
    /// Rank of the unit that reads.
    rank: u8,
    reads: RefCell<BTreeSet<ReadKey>>,
    wanted: RefCell<BTreeSet<ObjectKey>>,
    is_pending: Cell<bool>,
}

/// The record of one run.
pub(super) struct ViewRecord {
    /// In order.
    pub(super) reads: Box<[ReadKey]>,
    /// In order.
    pub(super) wanted: Box<[ObjectKey]>,
    /// Whether a required object was not read yet.
    pub(super) is_pending: bool,
}

/// A Secret or ConfigMap to which an object refers.
#[derive(Debug)]
pub(crate) enum ReferencedObject<'t, T> {
    Found(&'t Arc<T>),
    Missing,
    /// Not read yet. The previous output of the unit stays in force until it is, so the unit may return anything.
    Pending,
}

impl<'t, T> ReferencedObject<'t, T> {
    /// The object, if it was found.
    pub(crate) fn found(self) -> Option<&'t Arc<T>> {
        match self {
            ReferencedObject::Found(object) => Some(object),
            ReferencedObject::Missing | ReferencedObject::Pending => None,
        }
    }
}

impl<'t> TrackedView<'t> {
    pub(super) fn new(
        objects: &'t ObjectTable,
        tables: &'t OutputTables,
        context: &'t TranslationContext,
        now: Now,
        unit: &TranslationUnit,
    ) -> TrackedView<'t> {
        TrackedView {
            objects,
            tables,
            context,
            now,
            rank: unit.rank(),
            reads: RefCell::default(),
            wanted: RefCell::default(),
            is_pending: Cell::new(false),
        }
    }

    pub(super) fn finish(self) -> ViewRecord {
        ViewRecord {
            reads: self.reads.into_inner().into_iter().collect(),
            wanted: self.wanted.into_inner().into_iter().collect(),
            is_pending: self.is_pending.get(),
        }
    }

    pub(crate) fn settings(&self) -> &'t TranslationSettings {
        &self.context.settings
    }

    pub(crate) fn certificates(&self) -> &'t dyn CertificateInspector {
        &*self.context.certificates
    }

    /// A target port for a port of a Gateway whose Service has none yet; `None` if the range is exhausted. `is_real`
    /// is whether a Service with a target port has a right to it.
    pub(crate) fn propose_port(
        &self,
        claim: &PortClaim,
        is_real: impl Fn(&ObjectKey) -> bool,
    ) -> Option<u16> {
        let index = |port: u16| IndexKey::TargetPort { is_udp: claim.is_udp, port };
        let services = |port: u16| self.objects.index(&index(port));
        let is_observed = |port: u16| services(port).is_some();
        let is_real = |port: u16| services(port).into_iter().flatten().any(&is_real);
        let port = self.context.ports.borrow_mut().propose(claim, self.now, is_observed, is_real)?;
        self.record(ReadKey::Index(index(port)));
        Some(port)
    }

    /// Whether a target port may be bound for Gateways at all.
    pub(crate) fn is_usable_port(&self, target: u16) -> bool {
        self.context.ports.borrow().is_usable(target)
    }

    /// The claim that holds a target port, of those whose Services have it, in order of precedence.
    pub(crate) fn hold_port(&self, is_udp: bool, target: u16, claims: &[PortClaim]) -> Option<PortClaim> {
        self.context.ports.borrow_mut().hold(is_udp, target, claims).cloned()
    }

    /// Drops the proposals for a Gateway that `open` does not have.
    pub(crate) fn retain_proposals(&self, gateway: &ObjectKey, open: &BTreeSet<PortClaim>) {
        self.context.ports.borrow_mut().retain(gateway, open);
    }

    /// An object of the type that belongs to `key.kind`.
    pub(crate) fn get<T: LeanObject>(&self, key: &ObjectKey) -> Option<&'t Arc<T>> {
        self.record(ReadKey::Object(key.clone()));
        self.objects.get(key)
    }

    /// The objects of a kind in a namespace, by name.
    pub(crate) fn list<T: LeanObject>(&self, kind: ClusterKind, namespace: &Arc<str>) -> Vec<&'t Arc<T>> {
        self.record(ReadKey::In(kind, namespace.clone()));
        self.objects.in_namespace(kind, namespace).filter_map(|(_, object)| T::of(&object.body)).collect()
    }

    /// All objects of a kind, by namespace and name.
    pub(crate) fn list_all<T: LeanObject>(&self, kind: ClusterKind) -> Vec<&'t Arc<T>> {
        self.record(ReadKey::All(kind));
        self.objects.of_kind(kind).filter_map(|(_, object)| T::of(&object.body)).collect()
    }

    /// The members of an index, by namespace and name.
    pub(crate) fn index(&self, key: IndexKey) -> impl Iterator<Item = &'t ObjectKey> + use<'t> {
        let members = self.objects.index(&key);
        self.record(ReadKey::Index(key));
        members.into_iter().flatten()
    }

    /// The members of an index over the objects of `kind` in a namespace. Without any such object, the namespace is read:
    /// the many units of a namespace then share one fact.
    pub(crate) fn index_in(
        &self,
        kind: ClusterKind,
        namespace: &Arc<str>,
        key: IndexKey,
    ) -> impl Iterator<Item = &'t ObjectKey> + use<'t> {
        let is_empty = self.objects.in_namespace(kind, namespace).next().is_none();
        let members = self.objects.index(&key);
        self.record(if is_empty { ReadKey::In(kind, namespace.clone()) } else { ReadKey::Index(key) });
        members.into_iter().flatten()
    }

    /// A Secret, whose content becomes required by this read.
    pub(crate) fn secret(&self, namespace: &Arc<str>, name: &Arc<str>) -> ReferencedObject<'t, SecretObject> {
        self.referenced(ClusterKind::Secret, namespace, name)
    }

    /// A ConfigMap, whose content becomes required by this read.
    pub(crate) fn config_map(
        &self,
        namespace: &Arc<str>,
        name: &Arc<str>,
    ) -> ReferencedObject<'t, ConfigMapObject> {
        self.referenced(ClusterKind::ConfigMap, namespace, name)
    }

    /// The labels of a namespace; `None` if it is not known.
    pub(crate) fn namespace_labels(&self, namespace: &Arc<str>) -> Option<&'t LabelMap> {
        let key = ObjectKey { kind: ClusterKind::Namespace, namespace: "".into(), name: namespace.clone() };
        self.get::<NamespaceObject>(&key).map(|object| &object.meta.labels)
    }

    /// The listeners of a Gateway or ListenerSet; `None` if it is missing or belongs to another controller.
    pub(crate) fn parent(&self, key: &ObjectKey) -> Option<&'t Arc<ParentOutput>> {
        self.record(ReadKey::Parent(key.clone()));
        self.tables.parents.get(key)
    }

    /// Findings about a Gateway; `None` as for [`parent`](Self::parent).
    pub(crate) fn gateway_report(&self, gateway: &ObjectKey) -> Option<&'t Arc<GatewayReport>> {
        match self.derived(TranslationUnit::Gateway(gateway.clone()))? {
            DerivedOutput::Gateway(report) => Some(report),
            _ => None,
        }
    }

    /// The ports that all Gateways share, in mode `Merged`.
    pub(crate) fn shared_ports(&self) -> Option<&'t Arc<SharedPortTable>> {
        match self.derived(TranslationUnit::SharedPorts)? {
            DerivedOutput::SharedPorts(table) => Some(table),
            _ => None,
        }
    }

    /// The verdict on a policy.
    pub(crate) fn policy(&self, key: &ObjectKey) -> Option<&'t Arc<PolicyOutput>> {
        match self.derived(TranslationUnit::Policy(key.clone()))? {
            DerivedOutput::Policy(policy) => Some(policy),
            _ => None,
        }
    }

    /// The routes that an older route of the other kind keeps from a Gateway or ListenerSet.
    pub(crate) fn route_kind_conflicts(&self, parent: &ObjectKey) -> Option<&'t Arc<RouteKindConflicts>> {
        match self.derived(TranslationUnit::RouteKinds(parent.clone()))? {
            DerivedOutput::RouteKinds(conflicts) => Some(conflicts),
            _ => None,
        }
    }

    /// The candidate of a TCPRoute or UDPRoute.
    pub(crate) fn stream_candidate(&self, route: &ObjectKey) -> Option<&'t Arc<StreamRouteCandidate>> {
        match self.derived(TranslationUnit::Route(route.clone()))? {
            DerivedOutput::Stream(candidate) => Some(candidate),
            _ => None,
        }
    }

    /// The routes that are attached to a section, by kind, namespace and name. For units after routes only.
    pub(crate) fn attached(
        &self,
        section: &SectionKey,
    ) -> impl ExactSizeIterator<Item = &'t ObjectKey> + use<'t> {
        static NONE: BTreeSet<ObjectKey> = BTreeSet::new();
        self.record(ReadKey::Attached(section.clone()));
        let routes: &'t BTreeSet<ObjectKey> = self.tables.attached.get(section).unwrap_or(&NONE);
        routes.iter()
    }

    /// The Gateways whose routes use a policy. For units after routes.
    pub(crate) fn policy_users(&self, policy: &ObjectKey) -> impl Iterator<Item = &'t ObjectKey> + use<'t> {
        self.record(ReadKey::PolicyUsers(policy.clone()));
        self.tables.policy_users.get(policy).into_iter().flat_map(|users| users.keys())
    }

    /// The Ingresses of a group, in their order. For units after Ingresses.
    pub(crate) fn ingresses(
        &self,
        group: &IngressGroup,
    ) -> impl ExactSizeIterator<Item = &'t IngressMember> + use<'t> {
        static NONE: BTreeSet<IngressMember> = BTreeSet::new();
        self.record(ReadKey::Ingresses(group.clone()));
        let members: &'t BTreeSet<IngressMember> = self.tables.ingress_groups.get(group).unwrap_or(&NONE);
        members.iter()
    }

    /// The first Ingress of a group. For units after Ingresses.
    pub(crate) fn first_ingress(&self, group: &IngressGroup) -> Option<&'t Arc<ParsedIngress>> {
        self.record(ReadKey::FirstIngress(group.clone()));
        let first = self.tables.ingress_groups.get(group).and_then(BTreeSet::first)?;
        self.parsed_ingress(&first.key())
    }

    /// A served Ingress with its settings.
    pub(crate) fn parsed_ingress(&self, key: &ObjectKey) -> Option<&'t Arc<ParsedIngress>> {
        match self.derived(TranslationUnit::Ingress(key.clone()))? {
            DerivedOutput::Ingress(parsed) => Some(parsed),
            _ => None,
        }
    }

    /// The settings of all Ingresses; `None` until the ConfigMap was read.
    pub(crate) fn ingress_defaults(&self) -> Option<&'t Arc<ControllerSettings>> {
        match self.derived(TranslationUnit::IngressDefaults)? {
            DerivedOutput::IngressDefaults(settings) => Some(settings),
            _ => None,
        }
    }

    fn derived(&self, unit: TranslationUnit) -> Option<&'t DerivedOutput> {
        // A unit of the same rank may not have run yet, and its output would not run the reader again.
        debug_assert!(unit.rank() < self.rank, "{unit:?} is read by a unit that runs before it");
        let output = self.tables.derived.get(&unit);
        self.record(ReadKey::Derived(unit));
        output
    }

    fn referenced<T: LeanObject>(
        &self,
        kind: ClusterKind,
        namespace: &Arc<str>,
        name: &Arc<str>,
    ) -> ReferencedObject<'t, T> {
        let key = ObjectKey { kind, namespace: namespace.clone(), name: name.clone() };
        self.wanted.borrow_mut().insert(key.clone());
        let found = self.get::<T>(&key);
        match found {
            Some(object) => ReferencedObject::Found(object),
            None if self.objects.is_known(&key) => ReferencedObject::Missing,
            None => {
                self.is_pending.set(true);
                ReferencedObject::Pending
            }
        }
    }

    fn record(&self, key: ReadKey) {
        self.reads.borrow_mut().insert(key);
    }
}
