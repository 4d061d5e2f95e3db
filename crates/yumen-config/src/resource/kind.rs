//! The kinds of resource and their names in URIs, documents and keys.

/// What a resource is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// `routes`: which requests go where.
    Routes,
    /// `services`: settings shared by routes.
    Services,
    /// `upstreams`: named groups of endpoints.
    Upstreams,
    /// `consumers`: who calls.
    Consumers,
    /// `credentials`: how a consumer proves who it is; the id is `user/credentials/id`.
    Credentials,
    /// `consumer_groups`: plugins shared by consumers.
    ConsumerGroups,
    /// `plugin_configs`: plugins shared by routes.
    PluginConfigs,
    /// `global_rules`: plugins for every request.
    GlobalRules,
    /// `plugin_metadata`: settings shared by all uses of a plugin; the id is the plugin's name.
    PluginMetadata,
    /// `ssls`: certificates by server name.
    Ssls,
    /// `protos`: protobuf descriptions.
    Protos,
    /// `stream_routes`: L4 routes.
    StreamRoutes,
    /// `secrets`: secret managers; the id is `manager/id`.
    Secrets,
    /// `tests`: requests and what shall become of them.
    Tests,
}

impl Kind {
    /// Every kind, those others refer to first.
    pub const ALL: [Kind; 14] = [
        Kind::Secrets,
        Kind::Protos,
        Kind::PluginMetadata,
        Kind::Ssls,
        Kind::Upstreams,
        Kind::Services,
        Kind::PluginConfigs,
        Kind::ConsumerGroups,
        Kind::Consumers,
        Kind::Credentials,
        Kind::GlobalRules,
        Kind::Routes,
        Kind::StreamRoutes,
        Kind::Tests,
    ];

    /// The plural name in URIs, documents and problem objects.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Routes => "routes",
            Kind::Services => "services",
            Kind::Upstreams => "upstreams",
            Kind::Consumers => "consumers",
            Kind::Credentials => "credentials",
            Kind::ConsumerGroups => "consumer_groups",
            Kind::PluginConfigs => "plugin_configs",
            Kind::GlobalRules => "global_rules",
            Kind::PluginMetadata => "plugin_metadata",
            Kind::Ssls => "ssls",
            Kind::Protos => "protos",
            Kind::StreamRoutes => "stream_routes",
            Kind::Secrets => "secrets",
            Kind::Tests => "tests",
        }
    }

    /// The kind of that plural name.
    pub fn from_name(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}
