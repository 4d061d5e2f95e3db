//! The translator: the engine with the functions of all units.

use std::sync::Arc;

use yumen_base::time::Now;

use crate::admission_review::{
    AdmissionFindings, ResourceCheck, ReviewedObject, condition_findings, problem_findings, resource_findings,
};
use crate::certificates::CertificateInspector;
use crate::delta::{DesiredObject, TranslationDelta};
use crate::derived::UpstreamSource;
use crate::engine::{TrackedView, TranslationEngine, TranslationUnit, UnitOutput};
use crate::model::{ClusterChange, ClusterKind, ClusterObject, ObjectKey};
use crate::settings::TranslationSettings;
use crate::{apisix, gateway, ingress, policy, routes, upstreams};

/// Translates Kubernetes objects into resources, status drafts and objects, change by change.
#[derive(Clone)]
pub struct ClusterTranslator {
    engine: TranslationEngine,
}

impl ClusterTranslator {
    /// A translator without objects.
    pub fn new(
        settings: TranslationSettings,
        certificates: Arc<dyn CertificateInspector>,
    ) -> ClusterTranslator {
        ClusterTranslator { engine: TranslationEngine::new(settings, certificates) }
    }

    /// Applies changes in order and returns the differences that follow.
    ///
    /// A Secret or ConfigMap that an object refers to is required: its key is in [`TranslationDelta::wanted`], and the
    /// objects that refer to it keep their previous translation until a change answers it.
    pub fn apply(&mut self, changes: Vec<ClusterChange>, now: Now) -> TranslationDelta {
        for change in changes {
            self.engine.change(change, now);
        }
        self.engine.run(now, translate)
    }

    /// Judges a new or changed object by its effect on the objects in force, which stay as they are. `check` judges the
    /// resources that would differ.
    pub fn review(
        &mut self,
        reviewed: &ReviewedObject,
        now: Now,
        check: ResourceCheck<'_>,
    ) -> AdmissionFindings {
        let (object, is_new) = (reviewed.object.clone(), reviewed.is_new);
        let key = object.key();
        self.engine.attempt(object, now, translate, |view, effect| {
            if key.kind == ClusterKind::Ingress {
                return ingress::review_ingress(view, &key, is_new, effect, check);
            }
            let mut findings = AdmissionFindings::default();
            condition_findings(effect, &mut findings);
            problem_findings(&key, effect, &mut findings);
            resource_findings(effect, check, &mut findings);
            findings
        })
    }

    /// Tries again to find target ports for the Gateways that have none: a freed port is held for a minute. Returns the
    /// differences that follow; without such a Gateway there are none.
    pub fn retry_ports(&mut self, now: Now) -> TranslationDelta {
        self.engine.retry_ports();
        self.engine.run(now, translate)
    }

    /// All objects that the leader shall write, in the form that the newest change gave them.
    pub fn desired_objects(&self) -> Vec<DesiredObject> {
        self.engine.desired_objects()
    }

    /// An object as of the newest change, with its observed version and status.
    pub fn object(&self, key: &ObjectKey) -> Option<&ClusterObject> {
        self.engine.object(key)
    }
}

fn translate(unit: &TranslationUnit, view: &TrackedView<'_>) -> UnitOutput {
    match unit {
        TranslationUnit::Class(name) => gateway::translate_class(view, name),
        TranslationUnit::Gateway(key) => gateway::translate_gateway(view, key),
        TranslationUnit::RouteKinds(key) => routes::translate_route_kinds(view, key),
        TranslationUnit::GatewaySlices(key) => gateway::translate_gateway_slices(view, key),
        TranslationUnit::SharedPorts => gateway::translate_shared_ports(view),
        TranslationUnit::Policy(key) => policy::translate_policy(view, key),
        TranslationUnit::Route(key) => routes::translate_route(view, key),
        TranslationUnit::Apisix(key) => apisix::translate_object(view, key),
        TranslationUnit::PluginSet(key) => apisix::translate_plugin_set(view, key),
        TranslationUnit::SharedPlugins => apisix::translate_shared_plugins(view),
        TranslationUnit::StreamSection(section) => routes::translate_stream_section(view, section),
        TranslationUnit::IngressDefaults => ingress::translate_defaults(view),
        TranslationUnit::Ingress(key) => ingress::translate_ingress(view, key),
        TranslationUnit::IngressListeners => ingress::translate_listeners(view),
        TranslationUnit::IngressHost(host) => ingress::translate_host(view, host),
        TranslationUnit::IngressStreams => ingress::translate_streams(view),
        TranslationUnit::ServicePort(key) if key.source == UpstreamSource::Ingress => {
            ingress::translate_ingress_upstream(view, key)
        }
        TranslationUnit::ServicePort(key) => upstreams::translate_upstream(view, key),
        TranslationUnit::PolicyStatus(key) => policy::translate_policy_status(view, key),
        TranslationUnit::GatewayStatus(key) => gateway::translate_gateway_status(view, key),
        TranslationUnit::ListenerSetStatus(key) => gateway::translate_listener_set_status(view, key),
    }
}

#[cfg(test)]
mod tests;
