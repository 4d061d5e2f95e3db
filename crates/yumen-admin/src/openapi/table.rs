//! The table of endpoints: every verb of every path of the Admin API.

use yumen_config::Kind;

use super::{Endpoint, Payload};
use crate::schema::singular;

const ADMIN: &str = "/apisix/admin";
const LIST_QUERY: &[&str] = &["page", "page_size", "name", "label", "uri", "filter"];

/// Which verbs a kind has beside GET, PUT and DELETE, which all have.
struct Verbs {
    kind: Kind,
    /// With an id of the store's choosing.
    post: bool,
    /// Merging, and replacing one part by its path.
    patch: bool,
}

const fn verbs(kind: Kind, post: bool, patch: bool) -> Verbs {
    Verbs { kind, post, patch }
}

const VERBS: [Verbs; 13] = [
    verbs(Kind::Routes, true, true),
    verbs(Kind::Services, true, true),
    verbs(Kind::Upstreams, true, true),
    verbs(Kind::Consumers, false, false),
    verbs(Kind::Credentials, false, false),
    verbs(Kind::ConsumerGroups, false, true),
    verbs(Kind::Ssls, true, true),
    verbs(Kind::GlobalRules, false, true),
    verbs(Kind::PluginConfigs, false, true),
    verbs(Kind::PluginMetadata, false, false),
    verbs(Kind::Protos, true, false),
    verbs(Kind::StreamRoutes, true, false),
    verbs(Kind::Secrets, false, true),
];

/// Every verb of every path.
pub fn endpoints() -> Vec<Endpoint> {
    VERBS.iter().flat_map(of_kind).chain(about_schemas()).chain(about_everything()).collect()
}

fn endpoint(method: &'static str, path: impl Into<String>, tag: &'static str, summary: &str) -> Endpoint {
    Endpoint {
        method,
        path: path.into(),
        summary: summary.to_owned(),
        tag,
        takes: Payload::Nothing,
        gives: Vec::new(),
        query: &[],
        headers: &[],
    }
}

/// Where the objects of a kind are listed, and where one of them is.
fn places(kind: Kind) -> (String, String) {
    match kind {
        Kind::Credentials => {
            let all = format!("{ADMIN}/consumers/{{username}}/credentials");
            let one = format!("{all}/{{id}}");
            (all, one)
        }
        Kind::Secrets => (format!("{ADMIN}/secrets"), format!("{ADMIN}/secrets/{{manager}}/{{id}}")),
        Kind::Consumers => (format!("{ADMIN}/consumers"), format!("{ADMIN}/consumers/{{username}}")),
        Kind::PluginMetadata => {
            (format!("{ADMIN}/plugin_metadata"), format!("{ADMIN}/plugin_metadata/{{plugin}}"))
        }
        kind => (format!("{ADMIN}/{}", kind.name()), format!("{ADMIN}/{}/{{id}}", kind.name())),
    }
}

fn of_kind(verbs: &Verbs) -> Vec<Endpoint> {
    let Verbs { kind, post, patch } = *verbs;
    let (all, one) = places(kind);
    let (name, tag) = (singular(kind).replace('_', " "), kind.name());
    let at = |method, path: &str, summary: String, takes, gives: &[(u16, Payload)]| Endpoint {
        takes,
        gives: gives.to_vec(),
        ..endpoint(method, path, tag, &summary)
    };
    let stored = Payload::Stored(kind);
    let written = [(200, stored), (201, stored)];
    let object = Payload::Object(kind);
    let mut list = at("get", &all, format!("List {tag}"), Payload::Nothing, &[(200, Payload::List(kind))]);
    list.query = LIST_QUERY;
    let mut delete =
        at("delete", &one, format!("Delete a {name}"), Payload::Nothing, &[(200, Payload::Deleted)]);
    delete.query = &["force"];
    let mut put = at("put", &one, format!("Create or replace a {name}"), object, &written);
    put.query = &["ttl"];
    let mut endpoints = vec![
        list,
        at("get", &one, format!("Read a {name}"), Payload::Nothing, &[(200, stored)]),
        put,
        delete,
    ];
    if kind == Kind::Consumers {
        endpoints.push(at("put", &all, format!("Create or replace a {name}"), object, &written));
    }
    if post {
        let created = [(201, stored)];
        endpoints.push(at("post", &all, format!("Create a {name} with a new id"), object, &created));
    }
    if patch {
        let part = format!("{one}/{{path}}");
        let merged = [(200, stored)];
        endpoints.push(at("patch", &one, format!("Merge into a {name}"), Payload::Part(kind), &merged));
        endpoints.push(at("patch", &part, format!("Replace a part of a {name}"), Payload::Any, &merged));
    }
    endpoints
}

fn about_schemas() -> Vec<Endpoint> {
    let at = |method, path: &str, tag, summary: &str, gives, query| Endpoint {
        gives: vec![(200, gives)],
        query,
        ..endpoint(method, format!("{ADMIN}{path}"), tag, summary)
    };
    let schema = Payload::Schema;
    let mut validate =
        at("post", "/schema/validate/{resource}", "schema", "Judge an object", Payload::Any, &[]);
    validate.takes = Payload::Any;
    vec![
        at("get", "/schema/{main}", "schema", "The schema of a kind of resource", schema, &[]),
        at("get", "/schema/plugins/{name}", "schema", "The schema of a plugin", schema, &["schema_type"]),
        validate,
        at("get", "/plugins", "plugins", "Describe all plugins", Payload::Any, &["all", "subsystem"]),
        at("get", "/plugins/list", "plugins", "The names of plugins", Payload::Any, &["subsystem"]),
        at(
            "get",
            "/plugins/{name}",
            "plugins",
            "The schema of a plugin",
            schema,
            &["subsystem", "schema_type"],
        ),
        at("put", "/plugins/reload", "plugins", "Load plugins again", Payload::Text, &[]),
    ]
}

fn about_everything() -> Vec<Endpoint> {
    let path = format!("{ADMIN}/configs");
    let document = [(200, Payload::Document)];
    let mut read = endpoint("get", &path, "configs", "Read the whole configuration");
    read.gives = document.to_vec();
    let mut head = endpoint("head", &path, "configs", "The digest of the configuration in force");
    head.gives = vec![(200, Payload::Nothing)];
    let mut replace = endpoint("put", &path, "configs", "Replace the whole configuration");
    replace.takes = Payload::Document;
    replace.gives = vec![(202, Payload::Nothing), (204, Payload::Nothing)];
    replace.headers = &["X-Digest"];
    let mut judge = endpoint("post", format!("{path}/validate"), "configs", "Judge a whole configuration");
    judge.takes = Payload::Document;
    judge.gives = vec![(200, Payload::Any)];
    let mut openapi = endpoint("get", "/yumen/v1/openapi.json", "yumen", "This document");
    openapi.gives = vec![(200, Payload::Any)];
    vec![read, head, replace, judge, openapi]
}
