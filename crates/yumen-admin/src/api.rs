//! State that all handlers of the Admin API share.

use std::sync::Arc;

use yumen_config::node::AdminApiVersion;
use yumen_plugin::{MissingPlugins, PluginRegistry};
use yumen_snapshot::compile::{LoadCertificate, Variables};
use yumen_store::Store;

use crate::access::AdminAccess;
use crate::index::FactIndex;
use crate::lists::ListCache;
use crate::login_guard::LoginGuard;
use crate::operator_identity::IdentityProvider;

/// The state of the Admin API: store, plugins, access rules, caches.
#[derive(Clone)]
pub struct AdminState {
    /// The store of resources.
    pub store: Arc<dyn Store>,
    /// All plugins of this build.
    pub registry: Arc<PluginRegistry>,
    /// Plugins that may be configured although this version does not run them.
    pub missing: MissingPlugins,
    /// Loads a certificate and its key, to check that they match.
    pub load_certificate: LoadCertificate,
    /// The environment for `$env://` in settings; empty after [`AdminState::new`].
    pub variables: Variables,
    /// Access rules.
    pub access: Arc<AdminAccess>,
    /// Failed logins; shared by all listeners of the process.
    pub logins: Arc<LoginGuard>,
    /// The identity provider of the dashboard, if the settings have one.
    pub identity: Option<Arc<dyn IdentityProvider>>,
    /// Form of responses.
    pub api_version: AdminApiVersion,
    /// Whether the node's settings have a stream listener. If not, stream routes are refused until the store has
    /// listeners.
    pub stream_routes: bool,
    /// References and unique values of all objects, as of the newest state that a write was decided on.
    pub(crate) index: Arc<FactIndex>,
    /// Whole lists in serialized form, as of their last request.
    pub(crate) lists: Arc<ListCache>,
}

impl AdminState {
    /// The state of an API that requires keys of the store, in the form `v3`, without stream routes.
    pub fn new(
        store: Arc<dyn Store>,
        registry: Arc<PluginRegistry>,
        missing: MissingPlugins,
        load_certificate: LoadCertificate,
    ) -> AdminState {
        let index = Arc::new(FactIndex::default());
        // Spares the first write the time to index a large store.
        drop(index.catch_up(&registry, &store.state()));
        AdminState {
            store,
            registry,
            missing,
            load_certificate,
            variables: Arc::new(|_| None),
            access: Arc::new(AdminAccess::default()),
            logins: Arc::default(),
            identity: None,
            api_version: AdminApiVersion::V3,
            stream_routes: false,
            index,
            lists: Arc::default(),
        }
    }
}
