//! Schemas that the limit plugins share, as the APISIX tools know them.

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

/// Adds what the Redis policies ask for. `key_ttl` is asked for by limit-conn alone.
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

fn integer(minimum: u64, default: u64) -> Value {
    json!({"type": "integer", "minimum": minimum, "default": default})
}

fn text(length_min: u64) -> Value {
    json!({"type": "string", "minLength": length_min})
}

fn switch() -> Value {
    json!({"type": "boolean", "default": false})
}

/// What servers and clusters have in common.
fn common(key_ttl: bool) -> Value {
    let mut properties = json!({
        "redis_password": text(0),
        "redis_timeout": integer(1, 1000),
        "redis_keepalive_timeout": integer(1000, 10_000),
        "redis_keepalive_pool": integer(1, 100),
    });
    if key_ttl {
        properties["key_ttl"] = json!({"type": "integer", "default": 3600});
    }
    properties
}

fn server(key_ttl: bool) -> Value {
    let mut properties = common(key_ttl);
    properties["redis_host"] = text(2);
    properties["redis_port"] = integer(1, 6379);
    properties["redis_username"] = text(1);
    properties["redis_database"] = integer(0, 0);
    properties["redis_ssl"] = switch();
    properties["redis_ssl_verify"] = switch();
    json!({"properties": properties, "required": ["redis_host"]})
}

fn cluster(key_ttl: bool) -> Value {
    let mut properties = common(key_ttl);
    let node = json!({"type": "string", "minLength": 2, "maxLength": 100});
    properties["redis_cluster_nodes"] = json!({"type": "array", "minItems": 1, "items": node});
    properties["redis_cluster_name"] = json!({"type": "string"});
    properties["redis_cluster_ssl"] = switch();
    properties["redis_cluster_ssl_verify"] = switch();
    json!({"properties": properties, "required": ["redis_cluster_nodes", "redis_cluster_name"]})
}

fn sentinels() -> Value {
    let sentinel = json!({
        "type": "object",
        "properties": {"host": text(2), "port": {"type": "integer", "minimum": 1, "maximum": 65535}},
        "required": ["host", "port"],
        "additionalProperties": false
    });
    json!({
        "properties": {
            "redis_sentinels": {"type": "array", "minItems": 1, "items": sentinel},
            "redis_master_name": text(1),
            "redis_role": {"type": "string", "enum": ["master", "slave"], "default": "master"},
            "redis_connect_timeout": integer(1, 1000),
            "redis_read_timeout": integer(1, 1000),
            "redis_keepalive_timeout": integer(1, 60_000),
            "redis_database": integer(0, 0),
            "redis_username": text(1),
            "redis_password": text(0),
            "sentinel_username": text(1),
            "sentinel_password": text(0),
        },
        "required": ["redis_sentinels", "redis_master_name"]
    })
}
