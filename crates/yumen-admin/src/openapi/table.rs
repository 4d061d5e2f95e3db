//! The table of endpoints: every method of every path of the Admin API.

use yumen_config::Kind;
use yumen_config::resource::{IdRule, KindDescriptor, OptionalVerbs};

use super::{ApiArgument, ApiEndpoint, ApiPayload, ArgumentForm};
use crate::schema::singular;

const ADMIN: &str = "/apisix/admin";
const V1: &str = "/yumen/v1";

const fn argument(name: &'static str, form: ArgumentForm) -> ApiArgument {
    ApiArgument { name, form, is_required: false }
}

const fn text(name: &'static str) -> ApiArgument {
    argument(name, ArgumentForm::Text)
}

const fn number(name: &'static str) -> ApiArgument {
    argument(name, ArgumentForm::Number)
}

const WAIT: ApiArgument = argument("wait", ArgumentForm::OneOf(&["applied"]));
const TIMEOUT: ApiArgument = number("timeout");
const NODES: ApiArgument = argument("nodes", ArgumentForm::OneOf(&["self", "all", "quorum"]));
const LIST_QUERY: &[ApiArgument] = &[
    number("page"),
    argument("page_size", ArgumentForm::Between(10, 500)),
    text("name"),
    text("label"),
    text("uri"),
    text("filter"),
];
const WRITE_QUERY: &[ApiArgument] = &[WAIT, NODES, TIMEOUT];
const PUT_QUERY: &[ApiArgument] = &[number("ttl"), WAIT, NODES, TIMEOUT];
const DELETE_QUERY: &[ApiArgument] =
    &[argument("force", ArgumentForm::OneOf(&["true"])), WAIT, NODES, TIMEOUT];
const SUBSYSTEM: ApiArgument = argument("subsystem", ArgumentForm::OneOf(&["http", "stream"]));
const SCHEMA_TYPE: ApiArgument = argument("schema_type", ArgumentForm::OneOf(&["consumer", "metadata"]));
const ALL: ApiArgument = ApiArgument { is_required: true, ..argument("all", ArgumentForm::OneOf(&["true"])) };

/// Every method of every path.
pub fn endpoints() -> Vec<ApiEndpoint> {
    Kind::descriptors()
        .iter()
        .flat_map(of_kind)
        .chain(about_schemas())
        .chain(about_everything())
        .chain(extension_endpoints())
        .chain(key_endpoints())
        .chain(dashboard_endpoints())
        .chain([convert_endpoint()])
        .collect()
}

fn endpoint(method: &'static str, path: impl Into<String>, tag: &'static str, summary: &str) -> ApiEndpoint {
    ApiEndpoint {
        method,
        path: path.into(),
        summary: summary.to_owned(),
        tag,
        takes: ApiPayload::Nothing,
        gives: Vec::new(),
        query: &[],
        headers: &[],
    }
}

fn of_kind(descriptor: &KindDescriptor) -> Vec<ApiEndpoint> {
    let KindDescriptor { kind, admin_api, .. } = descriptor;
    let (kind, OptionalVerbs { post, patch }) = (*kind, admin_api.verbs);
    let (all, one) =
        (format!("{ADMIN}/{}", admin_api.list_path), format!("{ADMIN}/{}", admin_api.object_path));
    let (name, tag) = (singular(kind).replace('_', " "), kind.name());
    let at = |method, path: &str, summary: String, takes, gives: &[(u16, ApiPayload)]| ApiEndpoint {
        takes,
        gives: gives.to_vec(),
        ..endpoint(method, path, tag, &summary)
    };
    let stored = ApiPayload::Stored(kind);
    let written = [(200, stored), (201, stored)];
    let object = ApiPayload::Object(kind);
    let mut list =
        at("get", &all, format!("List {tag}"), ApiPayload::Nothing, &[(200, ApiPayload::List(kind))]);
    list.query = LIST_QUERY;
    let mut delete =
        at("delete", &one, format!("Delete a {name}"), ApiPayload::Nothing, &[(200, ApiPayload::Deleted)]);
    delete.query = DELETE_QUERY;
    let mut put = at("put", &one, format!("Create or replace a {name}"), object, &written);
    put.query = PUT_QUERY;
    let mut endpoints = vec![
        list,
        at("get", &one, format!("Read a {name}"), ApiPayload::Nothing, &[(200, stored)]),
        put,
        delete,
    ];
    if descriptor.id == IdRule::Username {
        let summary = format!("Create or replace a {name}, named in its body");
        endpoints.push(ApiEndpoint { query: PUT_QUERY, ..at("put", &all, summary, object, &written) });
    }
    if post {
        let summary = format!("Create a {name} with a new id");
        endpoints
            .push(ApiEndpoint { query: PUT_QUERY, ..at("post", &all, summary, object, &[(201, stored)]) });
    }
    if patch {
        let part = format!("{one}/{{path}}");
        let merged = [(200, stored)];
        let merge = at("patch", &one, format!("Merge into a {name}"), ApiPayload::Part(kind), &merged);
        let replace = at("patch", &part, format!("Replace a part of a {name}"), ApiPayload::Any, &merged);
        endpoints.extend([merge, replace].map(|patch| ApiEndpoint { query: WRITE_QUERY, ..patch }));
    }
    endpoints
}

fn about_schemas() -> Vec<ApiEndpoint> {
    let at = |method, path: &str, tag, summary: &str, gives, query| ApiEndpoint {
        gives: vec![(200, gives)],
        query,
        ..endpoint(method, format!("{ADMIN}{path}"), tag, summary)
    };
    let schema = ApiPayload::Schema;
    let mut validate =
        at("post", "/schema/validate/{resource}", "schema", "Validate an object", ApiPayload::Any, &[]);
    validate.takes = ApiPayload::Any;
    vec![
        at("get", "/schema/{main}", "schema", "The schema of a kind of resource", schema, &[]),
        at(
            "get",
            "/schema/plugins/{name}",
            "schema",
            "The schema of a plugin",
            schema,
            &[SUBSYSTEM, SCHEMA_TYPE],
        ),
        validate,
        at("get", "/plugins", "plugins", "Describe all plugins", ApiPayload::Any, &[ALL, SUBSYSTEM]),
        at("get", "/plugins/list", "plugins", "The names of plugins", ApiPayload::Any, &[SUBSYSTEM]),
        at("get", "/plugins/{name}", "plugins", "The schema of a plugin", schema, &[SUBSYSTEM, SCHEMA_TYPE]),
        at("put", "/plugins/reload", "plugins", "Load plugins again", ApiPayload::Text, &[]),
    ]
}

fn about_everything() -> Vec<ApiEndpoint> {
    let path = format!("{ADMIN}/configs");
    let mut read = endpoint("get", &path, "configs", "Read the whole configuration");
    read.gives = vec![(200, ApiPayload::Shape("configuration"))];
    let mut head = endpoint("head", &path, "configs", "The digest of the active configuration");
    head.gives = vec![(200, ApiPayload::Nothing)];
    let mut replace = endpoint("put", &path, "configs", "Replace the whole configuration");
    replace.takes = ApiPayload::Document;
    replace.gives = vec![(202, ApiPayload::Nothing), (204, ApiPayload::Nothing)];
    replace.headers = &["X-Digest"];
    let mut validate =
        endpoint("post", format!("{path}/validate"), "configs", "Validate a whole configuration");
    validate.takes = ApiPayload::Document;
    validate.gives = vec![(200, ApiPayload::Any)];
    vec![read, head, replace, validate]
}

/// Endpoints beyond the API of APISIX.
fn extension_endpoints() -> Vec<ApiEndpoint> {
    const HISTORY: &[ApiArgument] = &[number("before"), number("limit"), text("object")];
    const SPAN: &[ApiArgument] = &[FROM, number("to")];
    const ASKED: &[ApiArgument] = &[number("at"), FORMAT];
    const FROM: ApiArgument = ApiArgument { is_required: true, ..number("from") };
    const PLAN: &[ApiArgument] =
        &[MODE, number("changed_max"), number("removed_max"), FORMAT, text("delete")];
    const STRICT: ApiArgument = argument("strict", ArgumentForm::OneOf(&["true", "false"]));
    const CONFIRM: ApiArgument = argument("confirm", ArgumentForm::OneOf(&["true", "false"]));
    const MODE: ApiArgument = argument("mode", ArgumentForm::OneOf(&["merge", "replace"]));
    const WRITTEN: ApiArgument = argument("format", ArgumentForm::OneOf(&["yaml", "json"]));
    const FORMAT: ApiArgument = argument("format", ArgumentForm::OneOf(&["json", "text"]));
    const BULK: &[ApiArgument] = &[CONFIRM, WAIT, NODES, TIMEOUT];
    const UNDO: &[ApiArgument] = &[CONFIRM, number("expected_revision"), WAIT, NODES, TIMEOUT];
    let at = |method, path: &str, summary: &str, takes, gives, query| ApiEndpoint {
        takes,
        gives: vec![(200, gives)],
        query,
        ..endpoint(method, format!("{V1}{path}"), "yumen", summary)
    };
    let get = |path, summary, gives, query| at("get", path, summary, ApiPayload::Nothing, gives, query);
    let post = |path, summary, takes, gives, query| at("post", path, summary, takes, gives, query);
    let shape = ApiPayload::Shape;
    let (one, rollback) = ("/revisions/{revision}", "/revisions/{revision}/rollback");
    let (question, explanation) = (shape("question"), ApiPayload::ShapeOrText("explanation"));
    let top = "Use of routes, upstreams, plugins, consumers and sinks since the start";
    let apply = "Write and delete objects in one transaction";
    vec![
        get("/revisions", "List revisions, the newest first", shape("revisions"), HISTORY),
        get(one, "Changes of one revision", shape("revision"), &[]),
        post(rollback, "Write the content of an old revision", ApiPayload::Nothing, shape("restored"), UNDO),
        get("/diff", "Difference between two revisions", shape("difference"), SPAN),
        get("/applied", "The applied revision", shape("applied"), &[]),
        get("/cluster", "The nodes that share the store, and their progress", shape("cluster"), &[]),
        get("/problems", "Problems of the active configuration", shape("problems"), &[]),
        post("/explain", "Explanation of a request or a stream", question, explanation, ASKED),
        post("/apply", apply, shape("transaction"), shape("written"), BULK),
        post(
            "/import",
            "Write a whole document",
            ApiPayload::Document,
            shape("written"),
            &[MODE, CONFIRM, WAIT, NODES, TIMEOUT],
        ),
        post(
            "/store/confirm",
            "Release held deletions on every node",
            ApiPayload::Nothing,
            shape("confirmed"),
            &[],
        ),
        post(
            "/plan",
            "Effects of applying a document",
            ApiPayload::Document,
            ApiPayload::ShapeOrText("plan"),
            PLAN,
        ),
        get("/lint", "Lint findings of the stored configuration", shape("problems"), &[STRICT]),
        get("/backup", "A copy of the store, as a file", ApiPayload::Bytes, &[]),
        get("/export", "The whole configuration, private keys included", ApiPayload::Yaml, &[WRITTEN]),
        get("/listeners", "States of the configuration's listeners", ApiPayload::Any, &[]),
        get("/top", top, ApiPayload::Any, &[]),
        get("/openapi.json", "This document", ApiPayload::Any, &[]),
    ]
}

/// Endpoints that the dashboard needs, and its sessions.
fn dashboard_endpoints() -> Vec<ApiEndpoint> {
    const LIVE: &[ApiArgument] = &[
        number("after"),
        argument("rows", ArgumentForm::OneOf(&["routes", "upstreams", "plugins", "consumers"])),
        text("id"),
    ];
    const SINCE: &[ApiArgument] = &[number("since")];
    const REFERENCE: &[ApiArgument] = &[ApiArgument { is_required: true, ..text("reference") }];
    const ORIGIN: &[ApiArgument] = &[text("origin")];
    let at = |method, path: &str, summary: &str, gives, query| ApiEndpoint {
        gives: vec![(200, gives)],
        query,
        ..endpoint(method, format!("{V1}{path}"), "dashboard", summary)
    };
    let get = |path, summary, gives, query| at("get", path, summary, gives, query);
    let shape = ApiPayload::Shape;
    let open = "Open a session: a cookie and a token that stand for the key together";
    let live = "Rates of the last five minutes, in samples of two seconds";
    let objects = "Objects in short form, or the changes since a revision";
    let recent = "Recent requests, if observe.list_recent_requests is on";
    let forget = "Drop the value of a secret and fetch it again";
    vec![
        get("/session", "The holder of the key or the session", shape("session"), &[]),
        at("post", "/session", open, shape("opened_session"), &[]),
        ApiEndpoint {
            gives: vec![(204, ApiPayload::Nothing)],
            ..at("delete", "/session", "End the session", ApiPayload::Nothing, &[])
        },
        get("/live", live, shape("live"), LIVE),
        get("/objects/{kind}", objects, shape("objects"), SINCE),
        get("/upstreams", "Upstreams with the state of their endpoints", shape("upstreams"), ORIGIN),
        get("/certificates", "Validity of the server certificates in use", shape("certificates"), &[]),
        get("/recent", recent, ApiPayload::Any, &[]),
        get("/secrets", "References to secret managers, without values", shape("secrets"), &[]),
        at("post", "/secrets/refresh", "Fetch the values of all secrets", shape("refreshed"), &[]),
        at("post", "/secrets/forget", forget, shape("forgotten"), REFERENCE),
    ]
}

fn convert_endpoint() -> ApiEndpoint {
    const FORM: &[ApiArgument] =
        &[ApiArgument { is_required: true, ..argument("to", ArgumentForm::OneOf(&["json", "yaml"])) }];
    ApiEndpoint {
        takes: ApiPayload::Any,
        gives: vec![(200, ApiPayload::Shape("converted"))],
        query: FORM,
        ..endpoint(
            "post",
            format!("{V1}/convert"),
            "dashboard",
            "An object in YAML or JSON, in the other form",
        )
    }
}

fn key_endpoints() -> [ApiEndpoint; 3] {
    const ROLE: &[ApiArgument] = &[argument("role", ArgumentForm::OneOf(&["admin", "viewer"]))];
    let at = |method, path: &str, summary: &str, query| ApiEndpoint {
        gives: vec![(200, ApiPayload::Any)],
        query,
        ..endpoint(method, format!("{V1}/keys{path}"), "yumen", summary)
    };
    [
        at("get", "", "Holders of the keys in the store", &[]),
        at("put", "/{name}", "Replace or create the key of a holder", ROLE),
        at("delete", "/{name}", "Revoke the key of a holder", &[]),
    ]
}
