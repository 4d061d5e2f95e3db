//! Kubernetes objects, translated to resources, status drafts and objects of the controller.
//!
//! [`ClusterTranslator::apply`] takes changes of objects and returns the differences that follow. The crate is pure
//! and total: no I/O, no clock, no panic on any object. The order of modules, each of which uses those before it
//! only: `model`, `ingress_nginx` (texts of ingress-nginx), `settings`, `certificates`, `ports`, `resources`, `status`,
//! `delta`, `derived`, `engine`, `admission_review`, then the units of translation (`endpoints`, `gateway_proxy`, `gateway`, `overrides`,
//! `policy`, `upstreams`, `routes`, `apisix`, `ingress`), then `translator`.

mod admission_review;
mod apisix;
mod certificates;
mod delta;
mod derived;
mod endpoints;
mod engine;
mod gateway;
mod gateway_proxy;
mod grants;
mod ingress;
pub mod ingress_nginx;
mod model;
mod overrides;
mod policy;
mod ports;
mod resources;
mod routes;
mod settings;
pub mod status;
mod translator;
mod upstreams;

pub use admission_review::{
    AdmissionFindings, AdmissionQuestion, ResourceCheck, ReviewDefect, ReviewSubject, ReviewedObject,
    read_review,
};
pub use certificates::{CertificateInspector, CertificateNames};
pub use delta::{DesiredObject, ObjectPath, TranslationDelta};
pub use model::{
    ClusterChange, ClusterKind, ClusterObject, DecodeError, ObjectKey, ObjectMeta, OwningGateway,
    WatchedContent, WatchedKind, decode, readable_metadata, salvage,
};
pub use resources::{ResourceChange, ResourceName, TranslatedKind, TranslatedResource};
pub use settings::{ADOPTED_CONTROLLER, GatewayMode, IngressCounting, IngressOptions, TranslationSettings};
pub use translator::ClusterTranslator;
