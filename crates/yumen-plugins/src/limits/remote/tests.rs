use serde_json::{Value, json};

use super::*;

fn target(policy: &str, settings: Value) -> Result<Arc<RedisTarget>, (String, String)> {
    let config: RedisPolicySettings = serde_json::from_value(settings).expect("settings of the right shape");
    let policy: CounterPolicy = serde_json::from_value(json!(policy)).expect("a policy");
    let target = config.target(policy, &Carry::default());
    target.map(|target| target.expect("not local")).map_err(|refusal| (refusal.path, refusal.message))
}

fn at(host: &str, port: u16) -> RedisAddress {
    RedisAddress { host: host.to_owned(), port }
}

#[test]
fn settings_lead_to_a_server() {
    let settings = json!({"redis_host": "r", "redis_ssl": true, "redis_database": 3, "redis_timeout": 50,
        "redis_username": "u", "redis_password": "p"});
    let found = target("redis", settings).expect("a target");
    assert_eq!(found.topology, RedisTopology::Server(at("r", 6379)));
    assert_eq!((found.database, found.timeout_ms, found.tls), (3, 50, Some(RedisTls { verify: false })));
    assert_eq!(found.login, RedisLogin { username: "u".into(), password: "p".into() });
    let nodes = json!({"redis_cluster_nodes": ["a:1", "[::1]:2"]});
    let found = target("redis-cluster", nodes).expect("a target");
    assert_eq!(found.topology, RedisTopology::Cluster(vec![at("a", 1), at("::1", 2)]));
}

#[test]
fn an_address_of_ipv6_may_stand_in_brackets() {
    for written in ["::1", "[::1]"] {
        let server = target("redis", json!({"redis_host": written})).expect("a target");
        assert_eq!(server.topology, RedisTopology::Server(at("::1", 6379)));
        let sentinels = json!({"redis_sentinels": [{"host": written, "port": 1}], "redis_master_name": "m"});
        let found = target("redis-sentinel", sentinels).expect("a target");
        let RedisTopology::Sentinel { sentinels, .. } = &found.topology else { panic!("{found:?}") };
        assert_eq!(*sentinels, [at("::1", 1)]);
        let cluster = json!({"redis_cluster_nodes": [format!("{written}:2")]});
        let cluster = target("redis-cluster", cluster).expect("a target");
        assert_eq!(cluster.topology, RedisTopology::Cluster(vec![at("::1", 2)]));
    }
}

#[test]
fn invalid_redis_settings_are_refused_by_path() {
    let check = |policy: &str, settings: Value, path: &str, message: &str| {
        let (found_path, found) = target(policy, settings).expect_err("a refusal");
        assert_eq!((found_path.as_str(), found.as_str()), (path, message));
    };
    check("redis", json!({}), "", "property \"redis_host\" is required");
    check(
        "redis",
        json!({"redis_host": "r", "redis_port": 70_000}),
        "redis_port",
        "70000 is not a port; allowed: 1 to 65535",
    );
    check(
        "redis-cluster",
        json!({"redis_cluster_nodes": ["a:1", "b"]}),
        "redis_cluster_nodes[1]",
        "\"b\" is not an address; write host:port",
    );
    for host in ["[r]", "[::1", "[[::1]]", "[]"] {
        let message = format!("\"{host}\" is not a host; write a name or an address");
        check("redis", json!({"redis_host": host}), "redis_host", &message);
        let sentinels = json!({"redis_sentinels": [{"host": host, "port": 1}], "redis_master_name": "m"});
        check("redis-sentinel", sentinels, "redis_sentinels[0].host", &message);
    }
    check(
        "redis-sentinel",
        json!({"redis_sentinels": [{"host": "s", "port": 1}], "redis_master_name": "m", "redis_role": "slave"}),
        "redis_role",
        "\"slave\" cannot count, since replicas are read-only; allowed: \"master\"",
    );
}

#[test]
fn equal_settings_share_a_target_and_different_passwords_do_not() {
    let carry = Carry::default();
    let with = |password: &str| {
        let settings = json!({"redis_host": "r", "redis_password": password});
        let config: RedisPolicySettings = serde_json::from_value(settings).expect("settings");
        assert!(!format!("{config:?}").contains(password), "a password in the log");
        config.target(CounterPolicy::Redis, &carry).expect("sound").expect("not local")
    };
    let (one, same, other) = (with("secret-1"), with("secret-1"), with("secret-2"));
    assert!(Arc::ptr_eq(&one, &same));
    assert!(!Arc::ptr_eq(&one, &other));
}

#[test]
fn redis_keys_are_readable() {
    let check = |written: &[u8], expected: &str| {
        let mut out = Vec::new();
        write_key(written, &mut out);
        assert_eq!(String::from_utf8(out).expect("text"), expected);
    };
    check(b"=alice", "alice");
    check(b"=@x", "@x");
    check(&[b'@', 127, 0, 0, 1], "127.0.0.1");
    let mut v6 = vec![b'@'];
    v6.extend_from_slice(&std::net::Ipv6Addr::LOCALHOST.octets());
    check(&v6, "::1");
}
