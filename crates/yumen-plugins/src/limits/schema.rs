//! JSON schemas of the limit plugins, compatible with the tools of APISIX.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// `key_type` of limit-req and limit-conn.
pub(crate) fn key_type(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": ["var", "var_combination"], "default": "var"})
}

/// `key_type` of limit-count.
pub(crate) fn key_type_or_constant(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": ["var", "var_combination", "constant"], "default": "var"})
}

/// `policy` of limit-req and limit-conn.
pub(crate) fn policy(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": ["redis", "redis-cluster", "local"], "default": "local"})
}

/// `policy` of limit-count.
pub(crate) fn policy_or_sentinel(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "enum": ["local", "redis", "redis-cluster", "redis-sentinel"],
        "default": "local"
    })
}

/// Adds the settings of the Redis policies. Only limit-conn has `key_ttl`.
fn add_redis(schema: &mut Schema, key_ttl: bool, sentinel: bool) {
    let when = |policy: &str| json!({"properties": {"policy": {"enum": [policy]}}});
    let mut otherwise = json!({"if": when("redis-cluster"), "then": cluster(key_ttl)});
    if sentinel {
        otherwise["else"] = json!({"if": when("redis-sentinel"), "then": sentinels()});
    }
    schema.insert("if".to_owned(), when("redis"));
    schema.insert("then".to_owned(), server(key_ttl));
    schema.insert("else".to_owned(), otherwise);
}

/// Adds the Redis policies of limit-req.
pub(crate) fn redis(schema: &mut Schema) {
    add_redis(schema, false, false);
}

/// Adds the Redis policies of limit-conn.
pub(crate) fn redis_with_ttl(schema: &mut Schema) {
    add_redis(schema, true, false);
}

/// Adds the Redis policies of limit-count.
pub(crate) fn redis_with_sentinel(schema: &mut Schema) {
    add_redis(schema, false, true);
}

fn integer(minimum: u64, default: u64, meaning: &str) -> Value {
    json!({"type": "integer", "minimum": minimum, "default": default, "description": meaning})
}

fn text(length_min: u64, meaning: &str) -> Value {
    json!({"type": "string", "minLength": length_min, "description": meaning})
}

fn switch(meaning: &str) -> Value {
    json!({"type": "boolean", "default": false, "description": meaning})
}

const USERNAME: &str = "Who logs in; without it, the default user.";
const PASSWORD: &str = "The password; empty for no login.";
const DATABASE: &str = "Number of the database.";
const TIMEOUT: &str = "How long a server may take to answer, in milliseconds.";
const IDLE: &str = "How long an idle connection is kept, in milliseconds.";
const TLS: &str = "Whether servers are asked over TLS.";
const VERIFY: &str = "Whether their certificates are verified.";

/// Settings of both the server and the cluster policy.
fn common(key_ttl: bool) -> Value {
    let pool = "Taken and without effect: a worker keeps one connection to each server.";
    let mut properties = json!({
        "redis_password": text(0, PASSWORD),
        "redis_timeout": integer(1, 1000, TIMEOUT),
        "redis_keepalive_timeout": integer(1000, 10_000, IDLE),
        "redis_keepalive_pool": integer(1, 100, pool),
    });
    if key_ttl {
        let meaning = "Seconds after which an exchange whose node has died is forgotten.";
        properties["key_ttl"] = json!({"type": "integer", "default": 3600, "description": meaning});
    }
    properties
}

fn server(key_ttl: bool) -> Value {
    let mut properties = common(key_ttl);
    properties["redis_host"] = text(2, "Host of the server.");
    properties["redis_port"] = integer(1, 6379, "Its port.");
    properties["redis_username"] = text(1, USERNAME);
    properties["redis_database"] = integer(0, 0, DATABASE);
    properties["redis_ssl"] = switch(TLS);
    properties["redis_ssl_verify"] = switch(VERIFY);
    json!({"properties": properties, "required": ["redis_host"]})
}

fn cluster(key_ttl: bool) -> Value {
    let mut properties = common(key_ttl);
    let node = json!({"type": "string", "minLength": 2, "maxLength": 100});
    let meaning = "Nodes of the cluster, `host:port`, any of which tells the others.";
    properties["redis_cluster_nodes"] =
        json!({"type": "array", "minItems": 1, "items": node, "description": meaning});
    let meaning = "What the cluster is called; taken and without effect.";
    properties["redis_cluster_name"] = json!({"type": "string", "description": meaning});
    properties["redis_cluster_ssl"] = switch(TLS);
    properties["redis_cluster_ssl_verify"] = switch(VERIFY);
    json!({"properties": properties, "required": ["redis_cluster_nodes", "redis_cluster_name"]})
}

fn sentinels() -> Value {
    let sentinel = json!({
        "type": "object",
        "properties": {
            "host": text(2, "Host of a sentinel."),
            "port": {"type": "integer", "minimum": 1, "maximum": 65535, "description": "Its port."}
        },
        "required": ["host", "port"],
        "additionalProperties": false
    });
    let list =
        json!({"type": "array", "minItems": 1, "items": sentinel, "description": "Who names the server."});
    let role = "Which server is asked; a `slave` cannot count and is refused.";
    json!({
        "properties": {
            "redis_sentinels": list,
            "redis_master_name": text(1, "What sentinels call the server."),
            "redis_role": {
                "type": "string", "enum": ["master", "slave"], "default": "master", "description": role
            },
            "redis_connect_timeout": integer(1, 1000, "As `redis_read_timeout`; the longer one counts."),
            "redis_read_timeout": integer(1, 1000, TIMEOUT),
            "redis_keepalive_timeout": integer(1, 60_000, IDLE),
            "redis_database": integer(0, 0, DATABASE),
            "redis_username": text(1, USERNAME),
            "redis_password": text(0, PASSWORD),
            "sentinel_username": text(1, "Who logs in at sentinels."),
            "sentinel_password": text(0, "The password there."),
        },
        "required": ["redis_sentinels", "redis_master_name"]
    })
}
