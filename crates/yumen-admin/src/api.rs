//! What every handler of the Admin API shares: where resources live, what plugins there are.

use std::sync::Arc;

use yumen_config::node::AdminApiVersion;
use yumen_plugin::{MissingPlugins, PluginRegistry};
use yumen_snapshot::compile::{LoadCertificate, Variables};
use yumen_store::Store;

use crate::access::AdminAccess;
use crate::index::FactIndex;
use crate::lists::ListCache;

/// Where the Admin API finds what it serves.
#[derive(Clone)]
pub struct AdminState {
    /// Where resources live.
    pub store: Arc<dyn Store>,
    /// All plugins there are.
    pub registry: Arc<PluginRegistry>,
    /// Plugins that may be configured although this version does not run them.
    pub missing: MissingPlugins,
    /// Loads a certificate and its key, to tell whether they fit.
    pub load_certificate: LoadCertificate,
    /// The environment that `$env://` in settings refers to; [`AdminState::new`] gives an empty one.
    pub variables: Variables,
    /// Who may ask what.
    pub access: Arc<AdminAccess>,
    /// Shape of answers.
    pub api_version: AdminApiVersion,
    /// Whether this node serves stream routes; if not, they are refused.
    pub stream_routes: bool,
    /// What refers to what, as of the newest state anybody decided on.
    pub(crate) index: Arc<FactIndex>,
    /// Whole lists somebody asked for, as they are sent.
    pub(crate) lists: Arc<ListCache>,
}

impl AdminState {
    /// The state of an API that asks for a key of the store, in the shape `v3`, without stream routes.
    pub fn new(
        store: Arc<dyn Store>,
        registry: Arc<PluginRegistry>,
        missing: MissingPlugins,
        load_certificate: LoadCertificate,
    ) -> AdminState {
        let index = Arc::new(FactIndex::default());
        // The first writer need not wait for a large store to be read.
        drop(index.catch_up(&registry, &store.state()));
        AdminState {
            store,
            registry,
            missing,
            load_certificate,
            variables: Arc::new(|_| None),
            access: Arc::new(AdminAccess::default()),
            api_version: AdminApiVersion::V3,
            stream_routes: false,
            index,
            lists: Arc::default(),
        }
    }
}
