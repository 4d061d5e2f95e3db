//! Refusals and their messages.

use std::sync::Arc;

use super::{Api, Case, error};

const ROUTE: &str = r#"{"uri":"/a","upstream":{"type":"roundrobin","nodes":{"127.0.0.1:80":1}}}"#;
const UPSTREAM: &str = r#"{"type":"roundrobin","nodes":{"127.0.0.1:80":1}}"#;

#[tokio::test]
async fn verbs_that_a_resource_lacks_are_refused() {
    let api = Api::new();
    for (path, word, verbs) in [
        ("consumers/1", "consumer", &["POST", "PATCH"][..]),
        ("consumers/a/credentials/1", "credential", &["POST", "PATCH"]),
        ("consumer_groups/1", "consumer group", &["POST"]),
        ("global_rules/1", "global rule", &["POST"]),
        ("plugin_configs/1", "plugin config", &["POST"]),
        ("plugin_metadata/http-logger", "plugin_metadata", &["POST", "PATCH"]),
        ("protos/1", "proto", &["PATCH"]),
        ("stream_routes/1", "stream route", &["PATCH"]),
        ("secrets/vault/1", "secret", &["POST"]),
    ] {
        for verb in verbs {
            let answer = api.ask(&format!("{verb} /{path}"), "{}").await;
            assert_eq!(answer.status, 405, "{verb} {path}");
            let allow = answer.headers["allow"].to_str().unwrap_or("");
            assert!(allow.starts_with("GET,HEAD,PUT,") && !allow.contains(verb), "{verb} {path}: {allow}");
            super::check(path, &answer, &error(&format!("not supported `{verb}` method for {word}")));
        }
    }
    for verb in ["TRACE", "PURGE"] {
        assert_eq!(api.ask(&format!("{verb} /routes/1"), "").await.status, 404, "{verb}");
    }
}

#[tokio::test]
async fn ids_must_agree_and_be_ids() {
    for (path, word) in [
        ("routes", "route"),
        ("services", "service"),
        ("upstreams", "upstream"),
        ("ssls", "ssl"),
        ("protos", "proto"),
        ("stream_routes", "stream route"),
        ("consumer_groups", "consumer group"),
        ("global_rules", "global rule"),
        ("plugin_configs", "plugin config"),
        ("consumers/jack/credentials", "credential"),
    ] {
        let api = Api::new();
        for (line, body, message) in [
            (format!("PUT /{path}/1"), r#"{"id":"2"}"#, format!("wrong {word} id")),
            (format!("PUT /{path}"), "{}", format!("missing {word} id")),
            (format!("PUT /{path}/1"), "", "missing configurations".to_owned()),
            (format!("PUT /{path}/1"), "null", "missing configurations".to_owned()),
            (format!("DELETE /{path}"), "", format!("missing {word} id")),
        ] {
            let answer = api.ask(&line, body).await;
            assert_eq!(answer.status, 400, "{line}: {}", answer.text);
            super::check(&line, &answer, &error(&message));
        }
    }
    for (path, word) in [("routes", "route"), ("services", "service"), ("upstreams", "upstream")] {
        for (line, body) in [(format!("POST /{path}/1"), "{}"), (format!("POST /{path}"), r#"{"id":"1"}"#)] {
            let answer = Api::new().ask(&line, body).await;
            assert_eq!(answer.status, 400);
            super::check(&line, &answer, &error(&format!("wrong {word} id, do not need it")));
        }
    }
    // Clients remove these segments from a URL, so the object could be reached by its parent's path alone.
    for id in [".", ".."] {
        let api = Api::new();
        api.ask("PUT /consumers", r#"{"username":"jack"}"#).await;
        let key = r#"{"plugins":{"key-auth":{"key":"k"}}}"#;
        for (line, body) in [
            (format!("PUT /routes/{id}"), ROUTE),
            ("PUT /routes".to_owned(), &*format!(r#"{{"id":"{id}",{}"#, &ROUTE[1..])),
            (format!("PUT /consumers/jack/credentials/{id}"), key),
            (format!("PUT /secrets/vault/{id}"), r#"{"uri":"http://a","prefix":"p","token":"t"}"#),
            ("PUT /consumers".to_owned(), &*format!(r#"{{"username":"{id}"}}"#)),
        ] {
            let answer = api.ask(&line, body).await;
            assert_eq!(answer.status, 400, "{line}: {}", answer.text);
            assert!(
                answer.text.contains("must be neither . nor ..") || line == "PUT /consumers",
                "{line}: {}",
                answer.text
            );
        }
    }
    let long = "a".repeat(65);
    for id in ["a%20b", "a%2f", "%24", "a:b", long.as_str()] {
        for (line, body) in [
            (format!("PUT /routes/{id}%21"), ROUTE),
            (format!("PUT /plugin_configs/{id}%21"), r#"{"plugins":{}}"#),
        ] {
            let answer = Api::new().ask(&line, body).await;
            assert!(answer.status == 400 || answer.status == 404, "{line}: {}", answer.text);
        }
    }
}

#[tokio::test]
async fn malformed_requests_are_refused_in_known_words() {
    const CASES: &[Case] = &[
        ("GET /unknown", "", 404, r#"={"error_msg":"Unsupported resource type: unknown"}"#),
        ("PUT /credentials/1", "{}", 404, r#"={"error_msg":"Unsupported resource type: credentials"}"#),
        ("PUT /consumers", "{}", 400, ""),
        ("PUT /consumers/jill", r#"{"username":"jack"}"#, 400, r#"={"error_msg":"wrong username"}"#),
        (
            "PUT /consumers/jack/credentials/c",
            r#"{"plugins":{"key-auth":{"key":"k"}}}"#,
            404,
            r#"={"error_msg":"consumer not found"}"#,
        ),
        ("PUT /plugin_metadata", "{}", 400, r#"={"error_msg":"missing plugin name"}"#),
        ("PUT /plugin_metadata/no-such", "{}", 400, r#"={"error_msg":"invalid plugin name"}"#),
        ("PUT /secrets/vault", "{}", 400, r#"={"error_msg":"no secret id"}"#),
        ("PUT /secrets/file/1", "{}", 400, r#"={"error_msg":"invalid secret manager: file"}"#),
        ("DELETE /secrets/vault", "", 400, r#"={"error_msg":"missing secret id"}"#),
        (
            "PUT /routes/1?ttl=soon",
            ROUTE,
            400,
            r#"={"error_msg":"invalid argument ttl: should be a number"}"#,
        ),
        ("PUT /routes/1?ttl=-1", ROUTE, 400, r#"={"error_msg":"invalid argument ttl: should be a number"}"#),
        (
            "PUT /routes/1",
            r#"{"uri":"/a","plugins":{},"create_time":1}"#,
            400,
            r#"={"error_msg":"the property is forbidden: create_time"}"#,
        ),
        (
            "POST /routes",
            r#"{"uri":"/a","plugins":{},"update_time":1}"#,
            400,
            r#"={"error_msg":"the property is forbidden: update_time"}"#,
        ),
        (
            "PUT /consumers",
            r#"{"username":"jack","create_time":1}"#,
            400,
            r#"={"error_msg":"the property is forbidden: create_time"}"#,
        ),
        (
            "PUT /routes/1",
            r#"{"uri":"/a","upstream":{"create_time":1}}"#,
            400,
            r#"={"error_msg":"the property is forbidden: upstream.create_time"}"#,
        ),
        ("PUT /routes/1", r#"["uri"]"#, 400, ""),
        ("PUT /routes/1", r#"{"uri":5,"plugins":{}}"#, 400, ""),
    ];
    let api = Api::new();
    api.run(CASES).await;
    assert!(api.state.store.state().is_empty(), "what is refused is not written");
    let answer = api.ask("PUT /routes/1", "{uri").await.json();
    assert!(answer["error_msg"].as_str().unwrap().starts_with("invalid request body: "), "{answer}");
    assert_eq!(answer["req_body"], "{uri");
    let twice = r#"{"uri":"/a","plugins":{"key-auth":{}},"plugins":{}}"#;
    for line in ["PUT /routes/1", "POST /routes", "PATCH /routes/1"] {
        let answer = api.ask(line, twice).await;
        let message = "invalid request body: \"plugins\" is written more than once";
        assert_eq!((answer.status, answer.json()["error_msg"].as_str()), (400, Some(message)), "{line}");
    }
}

#[tokio::test]
async fn references_must_lead_somewhere() {
    const CASES: &[Case] = &[
        (
            "PUT /routes/1",
            r#"{"uri":"/a","upstream_id":"x"}"#,
            400,
            r#"={"error_msg":"failed to fetch upstream info by upstream id [x], response code: 404"}"#,
        ),
        (
            "POST /routes",
            r#"{"uri":"/a","upstream_id":7}"#,
            400,
            r#"={"error_msg":"failed to fetch upstream info by upstream id [7], response code: 404"}"#,
        ),
        (
            "PUT /routes/1",
            r#"{"uri":"/a","service_id":"x"}"#,
            400,
            r#"={"error_msg":"failed to fetch service info by service id [x], response code: 404"}"#,
        ),
        (
            "PUT /routes/1",
            r#"{"uri":"/a","plugins":{},"plugin_config_id":"x"}"#,
            400,
            r#"={"error_msg":"failed to fetch plugin config info by plugin config id [x], response code: 404"}"#,
        ),
        (
            "PUT /services/1",
            r#"{"upstream_id":"x"}"#,
            400,
            r#"={"error_msg":"failed to fetch upstream info by upstream id [x], response code: 404"}"#,
        ),
        (
            "PUT /stream_routes/1",
            r#"{"upstream_id":"x"}"#,
            400,
            r#"={"error_msg":"failed to fetch upstream info by upstream id [x], response code: 404"}"#,
        ),
        (
            "PUT /consumers",
            r#"{"username":"a","group_id":"x"}"#,
            400,
            r#"={"error_msg":"failed to fetch consumer group info by consumer group id [x], response code: 404"}"#,
        ),
        (
            "PUT /upstreams/1",
            r#"{"type":"roundrobin","nodes":{"127.0.0.1:80":1},"scheme":"https","tls":{"client_cert_id":"x"}}"#,
            400,
            r#"={"error_msg":"failed to fetch ssl info by ssl id [x], response code: 404"}"#,
        ),
        ("PUT /ssls/s", r#"{"sni":"a.com","cert":"$env://C","key":"$env://K"}"#, 201, ""),
        (
            "PUT /upstreams/1",
            r#"{"type":"roundrobin","nodes":{"127.0.0.1:80":1},"scheme":"https","tls":{"client_cert_id":"s"}}"#,
            400,
            r#"={"error_msg":"failed to fetch ssl info by ssl id [s], wrong ssl type"}"#,
        ),
        ("PUT /ssls/s", r#"{"type":"client","cert":"$env://C","key":"$env://K"}"#, 200, ""),
        (
            "PUT /upstreams/1",
            r#"{"type":"roundrobin","nodes":{"127.0.0.1:80":1},"scheme":"https","tls":{"client_cert_id":"s"}}"#,
            201,
            "",
        ),
        ("PUT /routes/1", r#"{"uri":"/a","upstream_id":1}"#, 201, ""),
        (
            "PATCH /routes/1",
            r#"{"upstream_id":"x"}"#,
            400,
            r#"={"error_msg":"failed to fetch upstream info by upstream id [x], response code: 404"}"#,
        ),
        (
            "PUT /stream_routes/1",
            r#"{"upstream_id":"1","protocol":{"name":"redis","superior_id":"1"}}"#,
            400,
            r#"={"error_msg":"stream route can not set itself as superior_id"}"#,
        ),
        (
            "PUT /stream_routes/1",
            r#"{"upstream_id":"1","protocol":{"name":"redis","superior_id":"2"}}"#,
            400,
            r#"={"error_msg":"failed to fetch stream routes[2], response code: 404"}"#,
        ),
        ("PUT /stream_routes/2", r#"{"upstream_id":"1","protocol":{"name":"dubbo"}}"#, 201, ""),
        (
            "PUT /stream_routes/1",
            r#"{"upstream_id":"1","protocol":{"name":"redis","superior_id":"2"}}"#,
            400,
            r#"={"error_msg":"protocol mismatch: subordinate protocol [redis] does not match superior protocol [dubbo]"}"#,
        ),
        (
            "PUT /stream_routes/1",
            r#"{"upstream_id":"1","protocol":{"name":"dubbo","superior_id":"2"}}"#,
            201,
            "",
        ),
        (
            "DELETE /stream_routes/2",
            "",
            400,
            r#"={"error_msg":"can not delete this stream route directly, stream route [1] is still using it as superior_id"}"#,
        ),
    ];
    Api::new().run(CASES).await;
}

/// The message that refuses a deletion, by the user of the object; a forced deletion succeeds.
#[tokio::test]
async fn objects_in_use_are_not_deleted_unless_forced() {
    const SPLIT: &str =
        r#"{"plugins":{"traffic-split":{"rules":[{"weighted_upstreams":[{"upstream_id":"u","weight":1}]}]}}"#;
    let split = |more: &str| format!("{SPLIT}{more}}}");
    for (used, user, body, message) in [
        (
            "upstreams/u",
            "routes/1",
            r#"{"uri":"/a","upstream_id":"u"}"#.to_owned(),
            "can not delete this upstream, route [1] is still using it now",
        ),
        (
            "upstreams/u",
            "routes/1",
            r#"{"uri":"/a","backends":[{"upstream_id":"u"}]}"#.to_owned(),
            "can not delete this upstream, route [1] is still using it now",
        ),
        (
            "upstreams/u",
            "routes/1",
            r#"{"uri":"/a","actions":{"mirrors":[{"upstream_id":"u"}]}}"#.to_owned(),
            "can not delete this upstream, route [1] is still using it now",
        ),
        (
            "upstreams/u",
            "services/1",
            r#"{"upstream_id":"u"}"#.to_owned(),
            "can not delete this upstream, service [1] is still using it now",
        ),
        (
            "upstreams/u",
            "stream_routes/1",
            r#"{"upstream_id":"u"}"#.to_owned(),
            "can not delete this upstream, stream_route [1] is still using it now",
        ),
        (
            "upstreams/u",
            "routes/1",
            split(r#","uri":"/a""#),
            "can not delete this upstream, plugin in route [1] is still using it now",
        ),
        (
            "upstreams/u",
            "services/1",
            split(""),
            "can not delete this upstream, plugin in service [1] is still using it now",
        ),
        (
            "upstreams/u",
            "plugin_configs/1",
            split(""),
            "can not delete this upstream, plugin in plugin_config [1] is still using it now",
        ),
        (
            "upstreams/u",
            "consumer_groups/1",
            split(""),
            "can not delete this upstream, plugin in consumer_group [1] is still using it now",
        ),
        (
            "upstreams/u",
            "global_rules/1",
            split(""),
            "can not delete this upstream, plugin in global_rules [1] is still using it now",
        ),
        (
            "upstreams/u",
            "consumers/jack",
            split(r#","username":"jack""#),
            "can not delete this upstream, plugin in consumer [jack] is still using it now",
        ),
        (
            "services/u",
            "routes/1",
            r#"{"uri":"/a","service_id":"u"}"#.to_owned(),
            "can not delete this service directly, route [1] is still using it now",
        ),
        (
            "services/u",
            "stream_routes/1",
            r#"{"service_id":"u"}"#.to_owned(),
            "can not delete this service directly, stream_route [1] is still using it now",
        ),
        (
            "plugin_configs/u",
            "routes/1",
            r#"{"uri":"/a","plugins":{},"plugin_config_id":"u"}"#.to_owned(),
            "can not delete this plugin config, route [1] is still using it now",
        ),
        (
            "consumer_groups/u",
            "consumers/jack",
            r#"{"username":"jack","group_id":"u"}"#.to_owned(),
            "can not delete this consumer group, consumer [jack] is still using it now",
        ),
        (
            "protos/u",
            "routes/1",
            r#"{"uri":"/a","plugins":{"grpc-transcode":{"proto_id":"u","service":"s","method":"m"}}}"#
                .to_owned(),
            "can not delete this proto, route [1] is still using it now",
        ),
        (
            "protos/u",
            "services/1",
            r#"{"plugins":{"grpc-transcode":{"proto_id":"u","service":"s","method":"m"}}}"#.to_owned(),
            "can not delete this proto, service [1] is still using it now",
        ),
        (
            "protos/u",
            "consumers/jack",
            r#"{"username":"jack","plugins":{"grpc-transcode":{"proto_id":"u","service":"s","method":"m"}}}"#
                .to_owned(),
            "can not delete this proto, consumer [jack] is still using it now",
        ),
        (
            "ssls/u",
            "upstreams/1",
            SHOWS.to_owned(),
            "can not delete this ssl, upstream [1] is still using it now",
        ),
        (
            "ssls/u",
            "routes/1",
            format!(r#"{{"uri":"/a","upstream":{SHOWS}}}"#),
            "can not delete this ssl, route [1] is still using it now",
        ),
        (
            "ssls/u",
            "services/1",
            format!(r#"{{"upstream":{SHOWS}}}"#),
            "can not delete this ssl, service [1] is still using it now",
        ),
        (
            "ssls/u",
            "plugin_configs/1",
            SPLIT.replace(r#""upstream_id":"u""#, &format!(r#""upstream":{SHOWS}"#)) + "}",
            "can not delete this ssl, plugin in plugin_config [1] is still using it now",
        ),
    ] {
        let api = Api::new();
        let made = api.ask(&format!("PUT /{used}"), &used_body(used)).await;
        assert_eq!(made.status, 201, "{used}: {}", made.text);
        let uses = api.ask(&format!("PUT /{user}"), &body).await;
        assert_eq!(uses.status, 201, "{user}: {}", uses.text);
        let refused = api.ask(&format!("DELETE /{used}"), "").await;
        assert_eq!(refused.status, 400, "{used} by {user}");
        super::check(used, &refused, &error(message));
        assert_eq!(api.ask(&format!("DELETE /{used}?force=false"), "").await.status, 400);
        assert_eq!(api.ask(&format!("DELETE /{used}?force=true"), "").await.status, 200);
        // without its user the object can be deleted without force
        assert_eq!(api.ask(&format!("PUT /{used}"), &used_body(used)).await.status, 201);
        assert_eq!(api.ask(&format!("DELETE /{user}"), "").await.status, 200);
        assert_eq!(api.ask(&format!("DELETE /{used}"), "").await.status, 200);
    }
}

fn used_body(path: &str) -> String {
    let body = match path.split('/').next().unwrap() {
        "upstreams" => UPSTREAM,
        "services" => "{}",
        "protos" => r#"{"content":"syntax = \"proto3\"; message A { string b = 1; }"}"#,
        "ssls" => return ssl("client").to_string(),
        _ => r#"{"plugins":{}}"#,
    };
    body.to_owned()
}

/// An upstream with the client certificate `ssls/u`.
const SHOWS: &str = r#"{"scheme":"https","nodes":{"127.0.0.1:443":1},"tls":{"client_cert_id":"u"}}"#;

fn ssl(kind: &str) -> serde_json::Value {
    let pem = "x".repeat(128);
    serde_json::json!({ "type": kind, "sni": "a.test", "cert": pem, "key": pem })
}

#[tokio::test]
async fn a_certificate_that_an_upstream_shows_stays_one_for_upstreams() {
    let api = Api::new();
    assert_eq!(api.ask("PUT /ssls/u", &ssl("client").to_string()).await.status, 201);
    assert_eq!(api.ask("PUT /upstreams/1", SHOWS).await.status, 201);
    let message = error("the type of this ssl must stay client, upstream [1] is still using it now");
    for (line, body) in [
        ("PUT /ssls/u", ssl("server").to_string()),
        ("PATCH /ssls/u", r#"{"type":"server"}"#.to_owned()),
        ("PATCH /ssls/u", r#"{"type":null}"#.to_owned()),
    ] {
        let answer = api.ask(line, &body).await;
        assert_eq!(answer.status, 400, "{line} {body}");
        super::check(line, &answer, &message);
    }
    assert_eq!(api.ask("PUT /ssls/u", &ssl("client").to_string()).await.status, 200);
    assert_eq!(api.ask("DELETE /upstreams/1", "").await.status, 200);
    assert_eq!(api.ask("PUT /ssls/u", &ssl("server").to_string()).await.status, 200);
}

#[tokio::test]
async fn consumers_have_distinct_keys() {
    const CASES: &[Case] = &[
        ("PUT /consumers", r#"{"username":"bob","plugins":{"key-auth":{"key":"kb"}}}"#, 201, ""),
        ("PUT /consumers", r#"{"username":"bob","plugins":{"key-auth":{"key":"kb"}}}"#, 200, ""),
        (
            "PUT /consumers",
            r#"{"username":"alex","plugins":{"key-auth":{"key":"kb"}}}"#,
            400,
            r#"={"error_msg":"duplicate key of plugin key-auth found with consumer: bob"}"#,
        ),
        ("PUT /consumers", r#"{"username":"alex"}"#, 201, ""),
        (
            "PUT /consumers/alex/credentials/c1",
            r#"{"plugins":{"key-auth":{"key":"kb"}}}"#,
            400,
            r#"={"error_msg":"duplicate key of plugin key-auth found with consumer: bob"}"#,
        ),
        ("PUT /consumers/alex/credentials/c1", r#"{"plugins":{"key-auth":{"key":"ka"}}}"#, 201, ""),
        ("PUT /consumers/alex/credentials/c1", r#"{"plugins":{"key-auth":{"key":"ka"}}}"#, 200, ""),
        (
            "PUT /consumers/alex/credentials/c2",
            r#"{"plugins":{"key-auth":{"key":"ka"}}}"#,
            400,
            r#"={"error_msg":"duplicate key of plugin key-auth found with credential: c1 of consumer: alex"}"#,
        ),
        (
            "PUT /consumers",
            r#"{"username":"bob","plugins":{"key-auth":{"key":"ka"}}}"#,
            400,
            r#"={"error_msg":"duplicate key of plugin key-auth found with credential: c1 of consumer: alex"}"#,
        ),
        ("PUT /consumers", r#"{"username":"alex","plugins":{"key-auth":{"key":"ka"}}}"#, 200, ""),
        (
            "PUT /consumers",
            r#"{"username":"cat","plugins":{"basic-auth":{"username":"ka","password":"p"}}}"#,
            201,
            "",
        ),
        (
            "PUT /consumers",
            r#"{"username":"dan","plugins":{"basic-auth":{"username":"ka","password":"q"}}}"#,
            400,
            r#"={"error_msg":"duplicate username of plugin basic-auth found with consumer: cat"}"#,
        ),
        ("PUT /consumers", r#"{"username":"al","plugins":{"key-auth":{"key":"ka"}}}"#, 400, ""),
        // a value is free again after its holder changed it or was deleted
        ("PUT /consumers", r#"{"username":"bob","plugins":{"key-auth":{"key":"kc"}}}"#, 200, ""),
        ("PUT /consumers", r#"{"username":"dan","plugins":{"key-auth":{"key":"kb"}}}"#, 201, ""),
        ("DELETE /consumers/alex", "", 200, ""),
        ("GET /consumers/alex/credentials/c1", "", 404, ""),
        ("PUT /consumers", r#"{"username":"eve","plugins":{"key-auth":{"key":"ka"}}}"#, 201, ""),
    ];
    Api::new().run(CASES).await;
}

#[tokio::test]
async fn a_key_is_not_taken_by_a_reference_that_means_it() {
    const CASES: &[Case] = &[
        ("PUT /consumers", r#"{"username":"zz","plugins":{"key-auth":{"key":"open"}}}"#, 201, ""),
        (
            "PUT /consumers",
            r#"{"username":"aa","plugins":{"key-auth":{"key":"$env://KEY"}}}"#,
            400,
            r#"={"error_msg":"duplicate key of plugin key-auth found with consumer: zz"}"#,
        ),
        ("PUT /consumers", r#"{"username":"bb","plugins":{"key-auth":{"key":"$env://OTHER"}}}"#, 201, ""),
        ("PUT /consumers", r#"{"username":"bb","plugins":{"key-auth":{"key":"$env://OTHER"}}}"#, 200, ""),
        (
            "PUT /consumers",
            r#"{"username":"cc","plugins":{"key-auth":{"key":"shut"}}}"#,
            400,
            r#"={"error_msg":"duplicate key of plugin key-auth found with consumer: bb"}"#,
        ),
        ("PUT /consumers", r#"{"username":"dd","plugins":{"key-auth":{"key":"$ENV://OTHER"}}}"#, 400, ""),
        ("PUT /consumers", r#"{"username":"ee","plugins":{"key-auth":{"key":"$env://NONE"}}}"#, 400, ""),
        ("PUT /consumers", r#"{"username":"ff","plugins":{"key-auth":{"key":"free"}}}"#, 201, ""),
    ];
    let environment = |name: &str| match name {
        "KEY" => Some("open".to_owned()),
        "OTHER" => Some("shut".to_owned()),
        _ => None,
    };
    Api::with(&super::admin(), |state| state.variables = Arc::new(environment)).run(CASES).await;
}

#[tokio::test]
async fn a_plugin_runs_everywhere_once() {
    const CASES: &[Case] = &[
        ("PUT /global_rules/1", r#"{"plugins":{"request-id":{}}}"#, 201, ""),
        ("PUT /global_rules/1", r#"{"plugins":{"request-id":{}}}"#, 200, ""),
        (
            "PUT /global_rules/2",
            r#"{"plugins":{"request-id":{}}}"#,
            400,
            r#"={"error_msg":"plugin 'request-id' already exists in global rule with id '1'"}"#,
        ),
        ("PUT /global_rules/2", r#"{"plugins":{"prometheus":{}}}"#, 201, ""),
        (
            "PATCH /global_rules/2/plugins",
            r#"{"request-id":{}}"#,
            400,
            r#"={"error_msg":"plugin 'request-id' already exists in global rule with id '1'"}"#,
        ),
        ("DELETE /global_rules/1", "", 200, ""),
        ("PATCH /global_rules/2/plugins", r#"{"request-id":{}}"#, 200, ""),
    ];
    Api::new().run(CASES).await;
}

#[tokio::test]
async fn limits_of_one_group_have_the_same_settings() {
    const CASES: &[Case] = &[
        (
            "PUT /plugin_configs/1",
            r#"{"plugins":{"limit-count":{"count":2,"time_window":60,"group":"g"}}}"#,
            201,
            "",
        ),
        // Defaults and the order of members do not matter, and other groups are other limits.
        (
            "PUT /plugin_configs/2",
            r#"{"plugins":{"limit-count":{"group":"g","key":"remote_addr","time_window":60,"count":2,"_meta":{}}}}"#,
            201,
            "",
        ),
        (
            "PUT /plugin_configs/3",
            r#"{"plugins":{"limit-count":{"count":3,"time_window":60,"group":"h"}}}"#,
            201,
            "",
        ),
        (
            "PUT /plugin_configs/3",
            r#"{"plugins":{"limit-count":{"count":3,"time_window":60,"group":"g"}}}"#,
            400,
            r#"={"error_msg":"failed to check the configuration of plugin limit-count err: group conf mismatched"}"#,
        ),
        (
            "PATCH /plugin_configs/2/plugins/limit-count/count",
            "3",
            400,
            r#"={"error_msg":"failed to check the configuration of plugin limit-count err: group conf mismatched"}"#,
        ),
        ("DELETE /plugin_configs/1", "", 200, ""),
        // The only limit of a group may change.
        ("PATCH /plugin_configs/2/plugins/limit-count/count", "3", 200, ""),
    ];
    Api::new().run(CASES).await;
}

#[tokio::test]
async fn line_breaks_in_strings_need_no_escape() {
    let api = Api::new();
    let proto = "{\"content\": \"syntax = \\\"proto3\\\";\n\tpackage a;\n\"}";
    let answer = api.ask("PUT /protos/1", proto).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    assert_eq!(answer.json()["value"]["content"], "syntax = \"proto3\";\n\tpackage a;\n");
    let answer = api.ask("PATCH /routes/1/desc", "\"a\nb").await;
    assert!(answer.text.contains("EOF while parsing a string at line 2 column 1"), "{}", answer.text);
}

#[tokio::test]
async fn stream_routes_are_refused_where_none_are_served() {
    let api = Api::with(&super::admin(), |state| state.stream_routes = false);
    for line in ["GET /stream_routes", "PUT /stream_routes/1", "DELETE /stream_routes/1"] {
        let answer = api.ask(line, "{}").await;
        assert_eq!(answer.status, 400);
        super::check(line, &answer, &error("stream mode is disabled, can not add stream routes"));
    }
    let listener = api.ask("PUT /listeners/1", r#"{"address": "127.0.0.1:9100", "protocol": "tcp"}"#).await;
    assert_eq!(listener.status, 201, "{}", listener.text);
    let route = r#"{"upstream": {"nodes": {"127.0.0.1:1": 1}, "scheme": "tcp"}}"#;
    assert_eq!(api.ask("PUT /stream_routes/1", route).await.status, 201);
}
