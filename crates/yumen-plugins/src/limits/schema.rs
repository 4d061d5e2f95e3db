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

const USERNAME: &str = "User name; without this setting the default user.";
const PASSWORD: &str = "Password; empty for no authentication.";
const DATABASE: &str = "Number of the database.";
const TIMEOUT: &str = "Timeout of a call in milliseconds.";
const IDLE: &str = "Idle timeout of a connection in milliseconds.";
const TLS: &str = "Whether connections use TLS.";
const VERIFY: &str = "Whether the certificates of the servers are verified.";

/// Settings of both the server and the cluster policy.
fn common(key_ttl: bool) -> Value {
    let pool = "Accepted without effect: a worker has one connection to each server.";
    let mut properties = json!({
        "redis_password": text(0, PASSWORD),
        "redis_timeout": integer(1, 1000, TIMEOUT),
        "redis_keepalive_timeout": integer(1000, 10_000, IDLE),
        "redis_keepalive_pool": integer(1, 100, pool),
    });
    if key_ttl {
        let meaning = "Seconds after which Redis drops an exchange whose node does not renew it.";
        properties["key_ttl"] = json!({"type": "integer", "default": 3600, "description": meaning});
    }
    properties
}

fn server(key_ttl: bool) -> Value {
    let mut properties = common(key_ttl);
    properties["redis_host"] = text(2, "Host of the server.");
    properties["redis_port"] = integer(1, 6379, "Port of the server.");
    properties["redis_username"] = text(1, USERNAME);
    properties["redis_database"] = integer(0, 0, DATABASE);
    properties["redis_ssl"] = switch(TLS);
    properties["redis_ssl_verify"] = switch(VERIFY);
    json!({"properties": properties, "required": ["redis_host"]})
}

fn cluster(key_ttl: bool) -> Value {
    let mut properties = common(key_ttl);
    let node = json!({"type": "string", "minLength": 2, "maxLength": 100});
    let meaning = "Some nodes of the cluster as `host:port`; the others are discovered.";
    properties["redis_cluster_nodes"] =
        json!({"type": "array", "minItems": 1, "items": node, "description": meaning});
    let meaning = "Name of the cluster. Accepted without effect.";
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
            "port": {"type": "integer", "minimum": 1, "maximum": 65535, "description": "Port of a sentinel."}
        },
        "required": ["host", "port"],
        "additionalProperties": false
    });
    let list = json!({"type": "array", "minItems": 1, "items": sentinel, "description": "The sentinels."});
    let role = "Role of the server to use; `slave` is refused, because replicas are read-only.";
    json!({
        "properties": {
            "redis_sentinels": list,
            "redis_master_name": text(1, "Name of the server at the sentinels."),
            "redis_role": {
                "type": "string", "enum": ["master", "slave"], "default": "master", "description": role
            },
            "redis_connect_timeout": integer(1, 1000, "As `redis_read_timeout`; the longer one counts."),
            "redis_read_timeout": integer(1, 1000, TIMEOUT),
            "redis_keepalive_timeout": integer(1, 60_000, IDLE),
            "redis_database": integer(0, 0, DATABASE),
            "redis_username": text(1, USERNAME),
            "redis_password": text(0, PASSWORD),
            "sentinel_username": text(1, "User name for the sentinels."),
            "sentinel_password": text(0, "Password for the sentinels."),
        },
        "required": ["redis_sentinels", "redis_master_name"]
    })
}
