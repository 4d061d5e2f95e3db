//! The table of resource kinds: one row each. A new kind is a new row here and an entry in `Kind::ALL`.

use super::{
    AdminApiShape, DeletionRefusal, IdRule, KindDescriptor, KindNames, KindReferences, OptionalVerbs,
    PluginRole, ReferencePlace, ReferenceRule, ReferenceScan, TrafficClass,
};
use crate::resource::{
    ConsumerGroup, ConsumerSpec, CredentialSpec, GlobalRule, ListenerSpec, PluginConfig, PluginMetadata,
    ProtoSpec, ResourceType, RouteSpec, ScopeSpec, SecretSpec, ServiceSpec, SslSpec, StreamRouteSpec, Test,
    UpstreamSpec, decode_value,
};

/// Generates [`Kind`] and the descriptors from the same rows, so that neither can lack one.
macro_rules! kind_table {
    ($(#[doc = $summary:literal] $kind:ident($type:ty) { $($row:tt)* })+) => {
        /// The kind of a resource. Its order is that of lists over several kinds.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind {
            $(#[doc = $summary] $kind,)+
        }

        impl Kind {
            /// The number of kinds.
            pub const COUNT: usize = [$(Kind::$kind),+].len();
        }

        pub(super) static DESCRIPTORS: [KindDescriptor; Kind::COUNT] = [$(KindDescriptor {
            kind: Kind::$kind,
            summary: $summary.trim_ascii(),
            schema: <$type as ResourceType>::schema,
            check: |value| decode_value::<$type>(value).map(drop),
            $($row)*
        }),+];
    };
}

/// The kinds that contain an upstream or name one with a client certificate.
const ENDPOINT_USERS: &[(Kind, &str)] = &[
    (Kind::Upstreams, "upstream"),
    (Kind::Routes, "route"),
    (Kind::Services, "service"),
    (Kind::StreamRoutes, "stream_route"),
    (Kind::PluginConfigs, "plugin_config"),
    (Kind::Consumers, "consumer"),
    (Kind::ConsumerGroups, "consumer_group"),
    (Kind::GlobalRules, "global_rules"),
];

/// The kinds that can name an upstream.
const UPSTREAM_USERS: &[(Kind, &str)] = ENDPOINT_USERS.split_at(1).1;

/// The kinds whose plugins can name a protobuf description.
const PROTO_USERS: &[(Kind, &str)] = &[
    (Kind::Routes, "route"),
    (Kind::Services, "service"),
    (Kind::PluginConfigs, "plugin_config"),
    (Kind::Consumers, "consumer"),
    (Kind::ConsumerGroups, "consumer_group"),
    (Kind::GlobalRules, "global_rules"),
];

kind_table! {
    /// Rules that match HTTP requests and name their upstream and plugins.
    Routes(RouteSpec) {
        names: KindNames {
            plural: "routes",
            singular: "route",
            label: "route",
        },
        parent: None,
        id: IdRule::Name,
        admin_api: AdminApiShape {
            list_path: "routes",
            object_path: "routes/{id}",
            verbs: OptionalVerbs { post: true, patch: true },
            filter_fields: &["service_id", "upstream_id"],
            secret_members: &[],
            in_configs: true,
        },
        traffic: TrafficClass::Http,
        plugins: PluginRole::Requests,
        host_fields: Some(("host", "hosts")),
        has_status: true,
        references: KindReferences {
            scan: ReferenceScan::Always,
            rule: None,
        },
    }

    /// Settings shared by routes.
    Services(ServiceSpec) {
        names: KindNames {
            plural: "services",
            singular: "service",
            label: "service",
        },
        parent: None,
        id: IdRule::Name,
        admin_api: AdminApiShape {
            list_path: "services",
            object_path: "services/{id}",
            verbs: OptionalVerbs { post: true, patch: true },
            filter_fields: &[],
            secret_members: &[],
            in_configs: true,
        },
        traffic: TrafficClass::Shared,
        plugins: PluginRole::Requests,
        host_fields: Some(("host", "hosts")),
        has_status: false,
        references: KindReferences {
            scan: ReferenceScan::Always,
            rule: Some(ReferenceRule {
                field: "service_id",
                position: ReferencePlace::Object,
                users: &[(Kind::Routes, "route"), (Kind::StreamRoutes, "stream_route")],
                refusal: DeletionRefusal { adverb: " directly", ..DeletionRefusal::PLAIN },
            }),
        },
    }

    /// Named groups of endpoints.
    Upstreams(UpstreamSpec) {
        names: KindNames {
            plural: "upstreams",
            singular: "upstream",
            label: "upstream",
        },
        parent: None,
        id: IdRule::Name,
        admin_api: AdminApiShape {
            list_path: "upstreams",
            object_path: "upstreams/{id}",
            verbs: OptionalVerbs { post: true, patch: true },
            filter_fields: &[],
            secret_members: &[],
            in_configs: true,
        },
        traffic: TrafficClass::Shared,
        plugins: PluginRole::None,
        host_fields: None,
        has_status: false,
        references: KindReferences {
            scan: ReferenceScan::Containing("client_cert_id"),
            rule: Some(ReferenceRule {
                field: "upstream_id",
                position: ReferencePlace::Object,
                users: UPSTREAM_USERS,
                refusal: DeletionRefusal { names_plugin: true, ..DeletionRefusal::PLAIN },
            }),
        },
    }

    /// Clients that authenticate.
    Consumers(ConsumerSpec) {
        names: KindNames {
            plural: "consumers",
            singular: "consumer",
            label: "consumer",
        },
        parent: None,
        id: IdRule::Username,
        admin_api: AdminApiShape {
            list_path: "consumers",
            object_path: "consumers/{username}",
            verbs: OptionalVerbs { post: false, patch: false },
            filter_fields: &[],
            secret_members: &[],
            in_configs: true,
        },
        traffic: TrafficClass::Http,
        plugins: PluginRole::Consumer,
        host_fields: None,
        has_status: false,
        references: KindReferences {
            scan: ReferenceScan::Always,
            rule: None,
        },
    }

    /// Keys of a consumer.
    Credentials(CredentialSpec) {
        names: KindNames {
            plural: "credentials",
            singular: "credential",
            label: "credential",
        },
        parent: Some(Kind::Consumers),
        id: IdRule::WithinParent,
        admin_api: AdminApiShape {
            list_path: "consumers/{username}/credentials",
            object_path: "consumers/{username}/credentials/{id}",
            verbs: OptionalVerbs { post: false, patch: false },
            filter_fields: &[],
            secret_members: &[],
            in_configs: true,
        },
        traffic: TrafficClass::Http,
        plugins: PluginRole::Credential,
        host_fields: None,
        has_status: false,
        references: KindReferences {
            scan: ReferenceScan::Always,
            rule: None,
        },
    }

    /// Plugins shared by consumers.
    ConsumerGroups(ConsumerGroup) {
        names: KindNames {
            plural: "consumer_groups",
            singular: "consumer_group",
            label: "consumer group",
        },
        parent: None,
        id: IdRule::Name,
        admin_api: AdminApiShape {
            list_path: "consumer_groups",
            object_path: "consumer_groups/{id}",
            verbs: OptionalVerbs { post: false, patch: true },
            filter_fields: &[],
            secret_members: &[],
            in_configs: true,
        },
        traffic: TrafficClass::Http,
        plugins: PluginRole::Requests,
        host_fields: None,
        has_status: false,
        references: KindReferences {
            scan: ReferenceScan::Always,
            rule: Some(ReferenceRule {
                field: "group_id",
                position: ReferencePlace::Object,
                users: &[(Kind::Consumers, "consumer")],
                refusal: DeletionRefusal::PLAIN,
            }),
        },
    }

    /// Plugins shared by routes.
    PluginConfigs(PluginConfig) {
        names: KindNames {
            plural: "plugin_configs",
            singular: "plugin_config",
            label: "plugin config",
        },
        parent: None,
        id: IdRule::Name,
        admin_api: AdminApiShape {
            list_path: "plugin_configs",
            object_path: "plugin_configs/{id}",
            verbs: OptionalVerbs { post: false, patch: true },
            filter_fields: &[],
            secret_members: &[],
            in_configs: true,
        },
        traffic: TrafficClass::Http,
        plugins: PluginRole::Requests,
        host_fields: None,
        has_status: false,
        references: KindReferences {
            scan: ReferenceScan::Always,
            rule: Some(ReferenceRule {
                field: "plugin_config_id",
                position: ReferencePlace::Object,
                users: &[(Kind::Routes, "route")],
                refusal: DeletionRefusal::PLAIN,
            }),
        },
    }

    /// Plugins that run for every request.
    GlobalRules(GlobalRule) {
        names: KindNames {
            plural: "global_rules",
            singular: "global_rule",
            label: "global rule",
        },
        parent: None,
        id: IdRule::Name,
        admin_api: AdminApiShape {
            list_path: "global_rules",
            object_path: "global_rules/{id}",
            verbs: OptionalVerbs { post: false, patch: true },
            filter_fields: &[],
            secret_members: &[],
            in_configs: true,
        },
        traffic: TrafficClass::Http,
        plugins: PluginRole::AllRequests,
        host_fields: None,
        has_status: false,
        references: KindReferences {
            scan: ReferenceScan::Always,
            rule: None,
        },
    }

    /// Settings shared by all uses of a plugin.
    PluginMetadata(PluginMetadata) {
        names: KindNames {
            plural: "plugin_metadata",
            singular: "plugin_metadata",
            label: "plugin_metadata",
        },
        parent: None,
        id: IdRule::PluginName,
        admin_api: AdminApiShape {
            list_path: "plugin_metadata",
            object_path: "plugin_metadata/{plugin}",
            verbs: OptionalVerbs { post: false, patch: false },
            filter_fields: &[],
            secret_members: &[],
            in_configs: true,
        },
        traffic: TrafficClass::Shared,
        plugins: PluginRole::None,
        host_fields: None,
        has_status: false,
        references: KindReferences {
            scan: ReferenceScan::Never,
            rule: None,
        },
    }

    /// Certificates, found by server name.
    Ssls(SslSpec) {
        names: KindNames {
            plural: "ssls",
            singular: "ssl",
            label: "ssl",
        },
        parent: None,
        id: IdRule::Name,
        admin_api: AdminApiShape {
            list_path: "ssls",
            object_path: "ssls/{id}",
            verbs: OptionalVerbs { post: true, patch: true },
            filter_fields: &[],
            secret_members: &["key", "keys"],
            in_configs: true,
        },
        traffic: TrafficClass::Shared,
        plugins: PluginRole::None,
        host_fields: None,
        has_status: true,
        references: KindReferences {
            scan: ReferenceScan::Never,
            rule: Some(ReferenceRule {
                field: "client_cert_id",
                position: ReferencePlace::UpstreamTls,
                users: ENDPOINT_USERS,
                refusal: DeletionRefusal { names_plugin: true, ..DeletionRefusal::PLAIN },
            }),
        },
    }

    /// Protobuf descriptions.
    Protos(ProtoSpec) {
        names: KindNames {
            plural: "protos",
            singular: "proto",
            label: "proto",
        },
        parent: None,
        id: IdRule::Name,
        admin_api: AdminApiShape {
            list_path: "protos",
            object_path: "protos/{id}",
            verbs: OptionalVerbs { post: true, patch: false },
            filter_fields: &[],
            secret_members: &[],
            in_configs: true,
        },
        traffic: TrafficClass::Http,
        plugins: PluginRole::None,
        host_fields: None,
        has_status: false,
        references: KindReferences {
            scan: ReferenceScan::Never,
            rule: Some(ReferenceRule {
                field: "proto_id",
                position: ReferencePlace::Plugins,
                users: PROTO_USERS,
                refusal: DeletionRefusal::PLAIN,
            }),
        },
    }

    /// Rules that match L4 streams.
    StreamRoutes(StreamRouteSpec) {
        names: KindNames {
            plural: "stream_routes",
            singular: "stream_route",
            label: "stream route",
        },
        parent: None,
        id: IdRule::Name,
        admin_api: AdminApiShape {
            list_path: "stream_routes",
            object_path: "stream_routes/{id}",
            verbs: OptionalVerbs { post: true, patch: false },
            filter_fields: &["service_id", "upstream_id"],
            secret_members: &[],
            in_configs: true,
        },
        traffic: TrafficClass::Stream,
        plugins: PluginRole::Streams,
        host_fields: Some(("sni", "snis")),
        has_status: false,
        references: KindReferences {
            scan: ReferenceScan::Always,
            rule: Some(ReferenceRule {
                field: "superior_id",
                position: ReferencePlace::StreamProtocol,
                users: &[(Kind::StreamRoutes, "stream route")],
                refusal: DeletionRefusal { adverb: " directly", object: "it as superior_id", ..DeletionRefusal::PLAIN },
            }),
        },
    }

    /// Access to secret managers.
    Secrets(SecretSpec) {
        names: KindNames {
            plural: "secrets",
            singular: "secret",
            label: "secret",
        },
        parent: None,
        id: IdRule::WithinManager,
        admin_api: AdminApiShape {
            list_path: "secrets",
            object_path: "secrets/{manager}/{id}",
            verbs: OptionalVerbs { post: false, patch: true },
            filter_fields: &[],
            secret_members: &[],
            in_configs: true,
        },
        traffic: TrafficClass::Shared,
        plugins: PluginRole::None,
        host_fields: None,
        has_status: false,
        references: KindReferences {
            scan: ReferenceScan::Never,
            rule: None,
        },
    }

    /// Addresses that open, change and close at run time.
    Listeners(ListenerSpec) {
        names: KindNames {
            plural: "listeners",
            singular: "listener",
            label: "listener",
        },
        parent: None,
        id: IdRule::Name,
        admin_api: AdminApiShape {
            list_path: "listeners",
            object_path: "listeners/{id}",
            verbs: OptionalVerbs { post: true, patch: true },
            filter_fields: &[],
            secret_members: &[],
            in_configs: false,
        },
        traffic: TrafficClass::Shared,
        plugins: PluginRole::None,
        host_fields: None,
        has_status: true,
        references: KindReferences {
            scan: ReferenceScan::Never,
            rule: None,
        },
    }

    /// Parts of a listener's traffic with routes and certificates of their own.
    Scopes(ScopeSpec) {
        names: KindNames {
            plural: "scopes",
            singular: "scope",
            label: "scope",
        },
        parent: None,
        id: IdRule::Name,
        admin_api: AdminApiShape {
            list_path: "scopes",
            object_path: "scopes/{id}",
            verbs: OptionalVerbs { post: true, patch: true },
            filter_fields: &[],
            secret_members: &[],
            in_configs: false,
        },
        traffic: TrafficClass::Shared,
        plugins: PluginRole::None,
        host_fields: None,
        has_status: false,
        references: KindReferences {
            scan: ReferenceScan::Never,
            rule: None,
        },
    }

    /// Requests and their expected outcomes; a write that breaks one is refused.
    Tests(Test) {
        names: KindNames {
            plural: "tests",
            singular: "test",
            label: "test",
        },
        parent: None,
        id: IdRule::Name,
        admin_api: AdminApiShape {
            list_path: "tests",
            object_path: "tests/{id}",
            verbs: OptionalVerbs { post: false, patch: true },
            filter_fields: &[],
            secret_members: &[],
            in_configs: false,
        },
        traffic: TrafficClass::Shared,
        plugins: PluginRole::None,
        host_fields: None,
        has_status: false,
        references: KindReferences {
            scan: ReferenceScan::Always,
            rule: None,
        },
    }
}
