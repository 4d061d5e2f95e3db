//! The table of endpoints: every verb of every path of the Admin API.

use yumen_config::Kind;
use yumen_config::resource::{IdRule, KindDescriptor, OptionalVerbs};

use super::{Argument, Endpoint, Form, Payload};
use crate::schema::singular;

const ADMIN: &str = "/apisix/admin";
const V1: &str = "/yumen/v1";

const fn argument(name: &'static str, form: Form) -> Argument {
    Argument { name, form, is_required: false }
}

const fn text(name: &'static str) -> Argument {
    argument(name, Form::Text)
}

const fn number(name: &'static str) -> Argument {
    argument(name, Form::Number)
}

const WAIT: Argument = argument("wait", Form::OneOf(&["applied"]));
const TIMEOUT: Argument = number("timeout");
const NODES: Argument = argument("nodes", Form::OneOf(&["self", "all", "quorum"]));
const LIST_QUERY: &[Argument] = &[
    number("page"),
    argument("page_size", Form::Between(10, 500)),
    text("name"),
    text("label"),
    text("uri"),
    text("filter"),
];
const WRITE_QUERY: &[Argument] = &[WAIT, NODES, TIMEOUT];
const PUT_QUERY: &[Argument] = &[number("ttl"), WAIT, NODES, TIMEOUT];
const DELETE_QUERY: &[Argument] = &[argument("force", Form::OneOf(&["true"])), WAIT, NODES, TIMEOUT];
const SUBSYSTEM: Argument = argument("subsystem", Form::OneOf(&["http", "stream"]));
const SCHEMA_TYPE: Argument = argument("schema_type", Form::OneOf(&["consumer", "metadata"]));
const ALL: Argument = Argument { is_required: true, ..argument("all", Form::OneOf(&["true"])) };

/// Every verb of every path.
pub fn endpoints() -> Vec<Endpoint> {
    Kind::descriptors()
        .iter()
        .flat_map(of_kind)
        .chain(about_schemas())
        .chain(about_everything())
        .chain(beyond())
        .collect()
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

fn of_kind(descriptor: &KindDescriptor) -> Vec<Endpoint> {
    let KindDescriptor { kind, verbs: OptionalVerbs { post, patch }, .. } = *descriptor;
    let (all, one) =
        (format!("{ADMIN}/{}", descriptor.list_path), format!("{ADMIN}/{}", descriptor.object_path));
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
    delete.query = DELETE_QUERY;
    let mut put = at("put", &one, format!("Create or replace a {name}"), object, &written);
    put.query = PUT_QUERY;
    let mut endpoints = vec![
        list,
        at("get", &one, format!("Read a {name}"), Payload::Nothing, &[(200, stored)]),
        put,
        delete,
    ];
    if descriptor.id == IdRule::Username {
        let summary = format!("Create or replace a {name}, named in its body");
        endpoints.push(Endpoint { query: PUT_QUERY, ..at("put", &all, summary, object, &written) });
    }
    if post {
        let summary = format!("Create a {name} with a new id");
        endpoints.push(Endpoint { query: PUT_QUERY, ..at("post", &all, summary, object, &[(201, stored)]) });
    }
    if patch {
        let part = format!("{one}/{{path}}");
        let merged = [(200, stored)];
        let merge = at("patch", &one, format!("Merge into a {name}"), Payload::Part(kind), &merged);
        let replace = at("patch", &part, format!("Replace a part of a {name}"), Payload::Any, &merged);
        endpoints.extend([merge, replace].map(|patch| Endpoint { query: WRITE_QUERY, ..patch }));
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
        at("get", "/schema/plugins/{name}", "schema", "The schema of a plugin", schema, &[SCHEMA_TYPE]),
        validate,
        at("get", "/plugins", "plugins", "Describe all plugins", Payload::Any, &[ALL, SUBSYSTEM]),
        at("get", "/plugins/list", "plugins", "The names of plugins", Payload::Any, &[SUBSYSTEM]),
        at("get", "/plugins/{name}", "plugins", "The schema of a plugin", schema, &[SUBSYSTEM, SCHEMA_TYPE]),
        at("put", "/plugins/reload", "plugins", "Load plugins again", Payload::Text, &[]),
    ]
}

fn about_everything() -> Vec<Endpoint> {
    let path = format!("{ADMIN}/configs");
    let mut read = endpoint("get", &path, "configs", "Read the whole configuration");
    read.gives = vec![(200, Payload::Shape("configuration"))];
    let mut head = endpoint("head", &path, "configs", "The digest of the configuration in force");
    head.gives = vec![(200, Payload::Nothing)];
    let mut replace = endpoint("put", &path, "configs", "Replace the whole configuration");
    replace.takes = Payload::Document;
    replace.gives = vec![(202, Payload::Nothing), (204, Payload::Nothing)];
    replace.headers = &["X-Digest"];
    let mut judge = endpoint("post", format!("{path}/validate"), "configs", "Judge a whole configuration");
    judge.takes = Payload::Document;
    judge.gives = vec![(200, Payload::Any)];
    vec![read, head, replace, judge]
}

/// What the gateway offers beyond the API it is compatible with.
fn beyond() -> Vec<Endpoint> {
    const HISTORY: &[Argument] = &[number("before"), number("limit"), text("object")];
    const SPAN: &[Argument] = &[FROM, number("to")];
    const ASKED: &[Argument] = &[number("at"), FORMAT];
    const FROM: Argument = Argument { is_required: true, ..number("from") };
    const PLAN: &[Argument] = &[MODE, number("changed_max"), number("removed_max"), FORMAT];
    const STRICT: Argument = argument("strict", Form::OneOf(&["true", "false"]));
    const CONFIRM: Argument = argument("confirm", Form::OneOf(&["true", "false"]));
    const MODE: Argument = argument("mode", Form::OneOf(&["merge", "replace"]));
    const WRITTEN: Argument = argument("format", Form::OneOf(&["yaml", "json"]));
    const FORMAT: Argument = argument("format", Form::OneOf(&["json", "text"]));
    let at = |method, path: &str, summary: &str, takes, gives, query| Endpoint {
        takes,
        gives: vec![(200, gives)],
        query,
        ..endpoint(method, format!("{V1}{path}"), "yumen", summary)
    };
    let get = |path, summary, gives, query| at("get", path, summary, Payload::Nothing, gives, query);
    let post = |path, summary, takes, gives, query| at("post", path, summary, takes, gives, query);
    let shape = Payload::Shape;
    let (one, rollback) = ("/revisions/{revision}", "/revisions/{revision}/rollback");
    let (question, explanation) = (shape("question"), Payload::ShapeOrText("explanation"));
    vec![
        get("/revisions", "List revisions, the newest first", shape("revisions"), HISTORY),
        get(one, "What one revision changed", shape("revision"), &[]),
        post(
            rollback,
            "Write the content of an old revision",
            Payload::Nothing,
            shape("restored"),
            &[CONFIRM, WAIT, NODES, TIMEOUT],
        ),
        get("/diff", "What differs between two revisions", shape("difference"), SPAN),
        get("/applied", "Which revision is in force", shape("applied"), &[]),
        get("/cluster", "The nodes that share the store, and how far each is", shape("cluster"), &[]),
        get("/problems", "What is wrong with the configuration in force", shape("problems"), &[]),
        post("/explain", "What becomes of a request or a stream", question, explanation, ASKED),
        post(
            "/apply",
            "Write and delete objects in one transaction",
            shape("transaction"),
            shape("written"),
            &[CONFIRM, WAIT, NODES, TIMEOUT],
        ),
        post(
            "/import",
            "Write a whole document",
            Payload::Document,
            shape("written"),
            &[MODE, CONFIRM, WAIT, NODES, TIMEOUT],
        ),
        post(
            "/store/confirm",
            "Let held deletions pass on every node",
            Payload::Nothing,
            shape("confirmed"),
            &[],
        ),
        post("/plan", "What a document would do", Payload::Document, Payload::ShapeOrText("plan"), PLAN),
        get("/lint", "What is stored that is probably not meant", shape("problems"), &[STRICT]),
        get("/backup", "A copy of the store, as a file", Payload::Bytes, &[]),
        get("/export", "The whole configuration, private keys included", Payload::Yaml, &[WRITTEN]),
        get("/openapi.json", "This document", Payload::Any, &[]),
    ]
}
