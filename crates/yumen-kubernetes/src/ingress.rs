//! Ingresses, put together by the rules of ingress-nginx: hosts to scopes, paths to routes, Services to upstreams.
//!
//! A host is a scope on the listeners `ingress!http` and `ingress!https`; the scope without a host answers everything
//! else. The unit of an Ingress reads its annotations; the unit of a host reads all Ingresses that name the host, in
//! order of creation. A path, the certificate, client certificates and aliases belong to the oldest one.

mod admission;
mod backends;
mod certificates;
mod class;
mod defaults;
mod effects;
mod host;
mod host_names;
mod listeners;
mod location_path;
mod locations;
mod members;
mod object;
mod passthrough;
mod redirect_hosts;
mod relocation;
mod route_writer;
mod sessions;
mod snippet_branches;
mod snippet_locations;
mod status;
mod streams;
mod upstream;

pub(crate) use admission::review_ingress;
pub(crate) use defaults::translate_defaults;
pub(crate) use host::translate_host;
pub(crate) use listeners::translate_listeners;
pub(crate) use object::translate_ingress;
pub(crate) use streams::translate_streams;
pub(crate) use upstream::translate_ingress_upstream;
