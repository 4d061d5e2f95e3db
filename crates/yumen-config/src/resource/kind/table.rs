//! The table of resource kinds: one row each. A new kind is a new row here and an entry in `Kind::ALL`.

use super::{
    DeletionRefusal, IdRule, KindDescriptor, OptionalVerbs, PluginRole, ReferencePlace, ReferenceRule,
    ReferenceScan, TrafficClass,
};
use crate::resource::{
    ConsumerGroup, ConsumerSpec, CredentialSpec, GlobalRule, PluginConfig, PluginMetadata, ProtoSpec,
    ResourceType, RouteSpec, SecretSpec, ServiceSpec, SslSpec, StreamRouteSpec, Test, UpstreamSpec,
    decode_value,
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
        name: "routes",
        singular: "route",
        label: "route",
        parent: None,
        list_path: "routes",
        object_path: "routes/{id}",
        id: IdRule::Name,
        verbs: OptionalVerbs { post: true, patch: true },
        filter_fields: &["service_id", "upstream_id"],
        in_configs: true,
        traffic: TrafficClass::Http,
        plugins: PluginRole::Requests,
        host_fields: Some(("host", "hosts")),
        has_status: true,
        reference_scan: ReferenceScan::Always,
        referenced: None,
        secret_members: &[],
    }

    /// Settings shared by routes.
    Services(ServiceSpec) {
        name: "services",
        singular: "service",
        label: "service",
        parent: None,
        list_path: "services",
        object_path: "services/{id}",
        id: IdRule::Name,
        verbs: OptionalVerbs { post: true, patch: true },
        filter_fields: &[],
        in_configs: true,
        traffic: TrafficClass::Shared,
        plugins: PluginRole::Requests,
        host_fields: Some(("host", "hosts")),
        has_status: false,
        reference_scan: ReferenceScan::Always,
        referenced: Some(ReferenceRule {
            field: "service_id",
            place: ReferencePlace::Object,
            users: &[(Kind::Routes, "route"), (Kind::StreamRoutes, "stream_route")],
            refusal: DeletionRefusal { adverb: " directly", ..DeletionRefusal::PLAIN },
        }),
        secret_members: &[],
    }

    /// Named groups of endpoints.
    Upstreams(UpstreamSpec) {
        name: "upstreams",
        singular: "upstream",
        label: "upstream",
        parent: None,
        list_path: "upstreams",
        object_path: "upstreams/{id}",
        id: IdRule::Name,
        verbs: OptionalVerbs { post: true, patch: true },
        filter_fields: &[],
        in_configs: true,
        traffic: TrafficClass::Shared,
        plugins: PluginRole::None,
        host_fields: None,
        has_status: false,
        reference_scan: ReferenceScan::Containing("client_cert_id"),
        referenced: Some(ReferenceRule {
            field: "upstream_id",
            place: ReferencePlace::Object,
            users: UPSTREAM_USERS,
            refusal: DeletionRefusal { names_plugin: true, ..DeletionRefusal::PLAIN },
        }),
        secret_members: &[],
    }

    /// Clients that authenticate.
    Consumers(ConsumerSpec) {
        name: "consumers",
        singular: "consumer",
        label: "consumer",
        parent: None,
        list_path: "consumers",
        object_path: "consumers/{username}",
        id: IdRule::Username,
        verbs: OptionalVerbs { post: false, patch: false },
        filter_fields: &[],
        in_configs: true,
        traffic: TrafficClass::Http,
        plugins: PluginRole::Consumer,
        host_fields: None,
        has_status: false,
        reference_scan: ReferenceScan::Always,
        referenced: None,
        secret_members: &[],
    }

    /// Keys of a consumer.
    Credentials(CredentialSpec) {
        name: "credentials",
        singular: "credential",
        label: "credential",
        parent: Some(Kind::Consumers),
        list_path: "consumers/{username}/credentials",
        object_path: "consumers/{username}/credentials/{id}",
        id: IdRule::WithinParent,
        verbs: OptionalVerbs { post: false, patch: false },
        filter_fields: &[],
        in_configs: true,
        traffic: TrafficClass::Http,
        plugins: PluginRole::Credential,
        host_fields: None,
        has_status: false,
        reference_scan: ReferenceScan::Always,
        referenced: None,
        secret_members: &[],
    }

    /// Plugins shared by consumers.
    ConsumerGroups(ConsumerGroup) {
        name: "consumer_groups",
        singular: "consumer_group",
        label: "consumer group",
        parent: None,
        list_path: "consumer_groups",
        object_path: "consumer_groups/{id}",
        id: IdRule::Name,
        verbs: OptionalVerbs { post: false, patch: true },
        filter_fields: &[],
        in_configs: true,
        traffic: TrafficClass::Http,
        plugins: PluginRole::Requests,
        host_fields: None,
        has_status: false,
        reference_scan: ReferenceScan::Always,
        referenced: Some(ReferenceRule {
            field: "group_id",
            place: ReferencePlace::Object,
            users: &[(Kind::Consumers, "consumer")],
            refusal: DeletionRefusal::PLAIN,
        }),
        secret_members: &[],
    }

    /// Plugins shared by routes.
    PluginConfigs(PluginConfig) {
        name: "plugin_configs",
        singular: "plugin_config",
        label: "plugin config",
        parent: None,
        list_path: "plugin_configs",
        object_path: "plugin_configs/{id}",
        id: IdRule::Name,
        verbs: OptionalVerbs { post: false, patch: true },
        filter_fields: &[],
        in_configs: true,
        traffic: TrafficClass::Http,
        plugins: PluginRole::Requests,
        host_fields: None,
        has_status: false,
        reference_scan: ReferenceScan::Always,
        referenced: Some(ReferenceRule {
            field: "plugin_config_id",
            place: ReferencePlace::Object,
            users: &[(Kind::Routes, "route")],
            refusal: DeletionRefusal::PLAIN,
        }),
        secret_members: &[],
    }

    /// Plugins that run for every request.
    GlobalRules(GlobalRule) {
        name: "global_rules",
        singular: "global_rule",
        label: "global rule",
        parent: None,
        list_path: "global_rules",
        object_path: "global_rules/{id}",
        id: IdRule::Name,
        verbs: OptionalVerbs { post: false, patch: true },
        filter_fields: &[],
        in_configs: true,
        traffic: TrafficClass::Http,
        plugins: PluginRole::AllRequests,
        host_fields: None,
        has_status: false,
        reference_scan: ReferenceScan::Always,
        referenced: None,
        secret_members: &[],
    }

    /// Settings shared by all uses of a plugin.
    PluginMetadata(PluginMetadata) {
        name: "plugin_metadata",
        singular: "plugin_metadata",
        label: "plugin_metadata",
        parent: None,
        list_path: "plugin_metadata",
        object_path: "plugin_metadata/{plugin}",
        id: IdRule::PluginName,
        verbs: OptionalVerbs { post: false, patch: false },
        filter_fields: &[],
        in_configs: true,
        traffic: TrafficClass::Shared,
        plugins: PluginRole::None,
        host_fields: None,
        has_status: false,
        reference_scan: ReferenceScan::Never,
        referenced: None,
        secret_members: &[],
    }

    /// Certificates, found by server name.
    Ssls(SslSpec) {
        name: "ssls",
        singular: "ssl",
        label: "ssl",
        parent: None,
        list_path: "ssls",
        object_path: "ssls/{id}",
        id: IdRule::Name,
        verbs: OptionalVerbs { post: true, patch: true },
        filter_fields: &[],
        in_configs: true,
        traffic: TrafficClass::Shared,
        plugins: PluginRole::None,
        host_fields: None,
        has_status: true,
        reference_scan: ReferenceScan::Never,
        referenced: Some(ReferenceRule {
            field: "client_cert_id",
            place: ReferencePlace::UpstreamTls,
            users: ENDPOINT_USERS,
            refusal: DeletionRefusal { names_plugin: true, ..DeletionRefusal::PLAIN },
        }),
        secret_members: &["key", "keys"],
    }

    /// Protobuf descriptions.
    Protos(ProtoSpec) {
        name: "protos",
        singular: "proto",
        label: "proto",
        parent: None,
        list_path: "protos",
        object_path: "protos/{id}",
        id: IdRule::Name,
        verbs: OptionalVerbs { post: true, patch: false },
        filter_fields: &[],
        in_configs: true,
        traffic: TrafficClass::Http,
        plugins: PluginRole::None,
        host_fields: None,
        has_status: false,
        reference_scan: ReferenceScan::Never,
        referenced: Some(ReferenceRule {
            field: "proto_id",
            place: ReferencePlace::Plugins,
            users: PROTO_USERS,
            refusal: DeletionRefusal::PLAIN,
        }),
        secret_members: &[],
    }

    /// Rules that match L4 streams.
    StreamRoutes(StreamRouteSpec) {
        name: "stream_routes",
        singular: "stream_route",
        label: "stream route",
        parent: None,
        list_path: "stream_routes",
        object_path: "stream_routes/{id}",
        id: IdRule::Name,
        verbs: OptionalVerbs { post: true, patch: false },
        filter_fields: &["service_id", "upstream_id"],
        in_configs: true,
        traffic: TrafficClass::Stream,
        plugins: PluginRole::Streams,
        host_fields: Some(("sni", "snis")),
        has_status: false,
        reference_scan: ReferenceScan::Always,
        referenced: Some(ReferenceRule {
            field: "superior_id",
            place: ReferencePlace::StreamProtocol,
            users: &[(Kind::StreamRoutes, "stream route")],
            refusal: DeletionRefusal { adverb: " directly", object: "it as superior_id", ..DeletionRefusal::PLAIN },
        }),
        secret_members: &[],
    }

    /// Access to secret managers.
    Secrets(SecretSpec) {
        name: "secrets",
        singular: "secret",
        label: "secret",
        parent: None,
        list_path: "secrets",
        object_path: "secrets/{manager}/{id}",
        id: IdRule::WithinManager,
        verbs: OptionalVerbs { post: false, patch: true },
        filter_fields: &[],
        in_configs: true,
        traffic: TrafficClass::Shared,
        plugins: PluginRole::None,
        host_fields: None,
        has_status: false,
        reference_scan: ReferenceScan::Never,
        referenced: None,
        secret_members: &[],
    }

    /// Requests and their expected outcomes; a write that breaks one is refused.
    Tests(Test) {
        name: "tests",
        singular: "test",
        label: "test",
        parent: None,
        list_path: "tests",
        object_path: "tests/{id}",
        id: IdRule::Name,
        verbs: OptionalVerbs { post: false, patch: true },
        filter_fields: &[],
        in_configs: false,
        traffic: TrafficClass::Shared,
        plugins: PluginRole::None,
        host_fields: None,
        has_status: false,
        reference_scan: ReferenceScan::Always,
        referenced: None,
        secret_members: &[],
    }
}
