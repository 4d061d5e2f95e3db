//! Limits that nodes share through Redis: exact counts, one round trip per request, and behaviour without
//! Redis.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::harness::redis::{self, Redis};
use crate::harness::upstream::{Gate, respond};
use crate::harness::{Client, Gateway, Options, Upstream, certs, eventually, run};

/// Plugin settings with the Redis connection.
fn with(redis: &Redis, mut settings: Value) -> Value {
    settings["policy"] = json!("redis");
    settings["redis_host"] = json!("127.0.0.1");
    settings["redis_port"] = json!(redis.port);
    if settings["redis_timeout"].is_null() {
        // A busy machine must not look like an outage.
        settings["redis_timeout"] = json!(20_000);
    }
    settings
}

/// A route for all requests with these plugins.
fn routes(upstream: &Upstream, plugins: &Value) -> Value {
    json!({ "routes": [{ "id": "1", "uri": "/*", "plugins": plugins, "upstream": upstream.alone() }] })
}

fn node(upstream: &Upstream, plugin: &str, settings: &Value) -> Gateway {
    Gateway::start(&routes(upstream, &json!({ plugin: settings })))
}

/// Sends requests through all nodes concurrently; returns the number of 200s.
fn flood(nodes: &[&Gateway], requests: usize) -> usize {
    let admitted = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        // Two connections per node, which may be on different workers.
        for node in nodes.iter().chain(nodes) {
            scope.spawn(|| {
                let mut client = Client::connect(node.http);
                for _ in 0..requests / 2 {
                    let reply = client.get("/");
                    assert!(matches!(reply.status, 200 | 503), "{reply:?}");
                    admitted.fetch_add(usize::from(reply.status == 200), Ordering::Relaxed);
                }
            });
        }
    });
    admitted.into_inner()
}

#[test]
fn two_nodes_admit_exactly_what_the_limit_says_in_one_round_trip_each() {
    let (redis, upstream) = (Redis::start(), Upstream::text("x"));
    for window_type in ["fixed", "sliding"] {
        let settings = json!({ "count": 60, "time_window": 3600, "key": "host", "window_type": window_type });
        let nodes = [(); 2].map(|()| node(&upstream, "limit-count", &with(&redis, settings.clone())));
        redis.cli(&["CONFIG", "RESETSTAT"]);
        // 40 requests on each of two connections to each of two nodes.
        assert_eq!(flood(&[&nodes[0], &nodes[1]], 80), 60, "{window_type}");
        let (by_digest, by_text) = (redis.calls("evalsha"), redis.calls("eval"));
        assert_eq!(by_digest, 160, "{window_type}: a question each");
        assert!(by_text <= 4, "{window_type}: the text once per worker at most, not {by_text} times");
        let round_trips: f64 = nodes.iter().map(|node| node.metric("yumen_redis_round_trips_total")).sum();
        assert_eq!(round_trips as u64, by_digest + by_text, "{window_type}");
    }
}

#[test]
fn clients_are_told_their_quota_as_with_local_counters() {
    let (redis, upstream) = (Redis::start(), Upstream::text("x"));
    let settings = with(&redis, json!({ "count": 2, "time_window": 60, "rejected_code": 429 }));
    let gateway = node(&upstream, "limit-count", &settings);
    for (status, remaining) in [(200, "1"), (200, "0"), (429, "0")] {
        let reply = gateway.get("/");
        assert_eq!(reply.status, status);
        assert_eq!(reply.field("x-ratelimit-limit"), Some("2"));
        assert_eq!(reply.field("x-ratelimit-remaining"), Some(remaining));
        let reset: f64 = reply.field("x-ratelimit-reset").expect("a reset").parse().expect("seconds");
        assert!((0.0..=60.0).contains(&reset), "{reset}");
    }
}

#[test]
fn rules_are_counted_one_after_another_in_one_question() {
    let (redis, upstream) = (Redis::start(), Upstream::text("x"));
    let rules = json!([
        { "count": 1, "time_window": 3600, "key": "$http_a" },
        { "count": 10, "time_window": 3600, "key": "$http_b" },
    ]);
    let gateway = node(&upstream, "limit-count", &with(&redis, json!({ "rules": rules })));
    redis.cli(&["CONFIG", "RESETSTAT"]);
    let both = "A: 1\r\nB: 1\r\n";
    let first = gateway.get_with("/", both);
    assert_eq!((first.status, first.field("x-2-ratelimit-remaining")), (200, Some("9")));
    let second = gateway.get_with("/", both);
    assert_eq!((second.status, second.field("x-2-ratelimit-remaining")), (503, None), "the first refuses");
    let third = gateway.get_with("/", "B: 1\r\n");
    assert_eq!(
        (third.status, third.field("x-2-ratelimit-remaining")),
        (200, Some("8")),
        "refused, not counted"
    );
    assert_eq!(redis.calls("evalsha"), 3);
}

#[test]
fn a_group_is_called_in_redis_as_apisix_calls_it() {
    let (redis, upstream) = (Redis::start(), Upstream::text("x"));
    let settings = json!({ "count": 5, "time_window": 60, "group": "shop", "key": "remote_addr" });
    let gateway = node(&upstream, "limit-count", &with(&redis, settings));
    redis.cli(&["SET", "plugin-limit-count:v1:shop:127.0.0.1", "3", "EX", "50"]);
    let reply = gateway.get("/");
    assert_eq!(reply.field("x-ratelimit-remaining"), Some("1"), "what another gateway counted counts");
    assert_eq!(redis.cli(&["GET", "plugin-limit-count:v1:shop:127.0.0.1"]).trim(), "4");
}

#[test]
fn limit_req_paces_two_nodes_as_one() {
    let (redis, upstream) = (Redis::start(), Upstream::text("x"));
    // One request per 1000 s, and a burst of four.
    let settings = json!({ "rate": 0.001, "burst": 4, "key": "host", "nodelay": true });
    let nodes = [(); 2].map(|()| node(&upstream, "limit-req", &with(&redis, settings.clone())));
    redis.cli(&["CONFIG", "RESETSTAT"]);
    assert_eq!(flood(&[&nodes[0], &nodes[1]], 20), 5);
    assert_eq!(redis.calls("evalsha"), 40, "a question each");
}

#[test]
fn a_rate_so_low_that_its_bucket_outlives_the_clock_of_redis_is_kept() {
    let (redis, upstream) = (Redis::start(), Upstream::text("x"));
    let settings = json!({ "rate": 1e-20, "burst": 0, "key": "host" });
    let gateway = node(&upstream, "limit-req", &with(&redis, settings));
    assert_eq!([(); 3].map(|()| gateway.get("/").status), [200, 503, 503]);
}

/// An upstream that responds when the gate is open.
fn gated(gate: &Gate) -> Upstream {
    let gate = gate.clone();
    Upstream::start(move |_, stream| {
        gate.pass();
        respond(stream, 200, "", b"x")
    })
}

/// Number of exchanges in Redis, under all keys.
fn members(redis: &Redis) -> usize {
    let keys = redis.cli(&["KEYS", "limit_conn:*"]);
    let count = |key: &str| redis.cli(&["ZCARD", key]).trim().parse::<usize>().expect("a number");
    keys.lines().filter(|key| !key.is_empty()).map(count).sum()
}

#[test]
fn limit_conn_counts_exchanges_of_two_nodes_and_forgets_them_when_they_end() {
    let (redis, gate) = (Redis::start(), Gate::default());
    let upstream = gated(&gate);
    let settings = json!({ "conn": 2, "burst": 1, "default_conn_delay": 0.01, "key": "host" });
    let nodes = [(); 2].map(|()| node(&upstream, "limit-conn", &with(&redis, settings.clone())));
    let request = "GET / HTTP/1.1\r\nHost: test\r\n\r\n";
    let mut waiting: Vec<Client> = Vec::new();
    for number in 0..3 {
        let mut client = Client::connect(nodes[number % 2].http);
        client.send(request);
        waiting.push(client);
        eventually("it is counted", 10, || members(&redis) == number + 1);
    }
    for node in &nodes {
        assert_eq!(node.get("/").status, 503);
    }
    gate.open();
    for client in &mut waiting {
        assert_eq!(client.reply().status, 200);
    }
    eventually("all are forgotten", 10, || members(&redis) == 0);
}

#[test]
fn exchanges_of_a_node_that_died_expire_and_those_of_one_that_lives_are_renewed() {
    let (redis, gate) = (Redis::start(), Gate::default());
    let upstream = gated(&gate);
    // Renewed every few seconds: long enough for a machine that stalls for some of them.
    let settings = json!({ "conn": 2, "burst": 0, "default_conn_delay": 0.01, "key": "host", "key_ttl": 20 });
    let nodes = [(); 2].map(|()| node(&upstream, "limit-conn", &with(&redis, settings.clone())));
    let mut clients = nodes.each_ref().map(|node| Client::connect(node.http));
    for (number, client) in clients.iter_mut().enumerate() {
        client.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
        eventually("it is counted", 10, || members(&redis) == number + 1);
    }
    nodes[0].kill();
    // The next exchange removes expired members: only that of the dead node.
    let mut next = Client::connect(nodes[1].http);
    let mut refused = 0;
    loop {
        next.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
        eventually("it is refused or forwarded", 10, || next.has_bytes() || upstream.requests() == 3);
        if upstream.requests() == 3 {
            break;
        }
        assert_eq!(next.reply().status, 503);
        refused += 1;
        assert!(refused < 100_000, "the dead node's exchange stays");
    }
    assert_eq!(nodes[1].get("/").status, 503, "two live ones are counted");
    gate.open();
    assert_eq!(clients[1].reply().status, 200);
    assert_eq!(next.reply().status, 200);
}

#[test]
fn a_password_and_a_database_are_used_and_a_wrong_password_is_told() {
    let (redis, upstream) = (Redis::with_password("s3cret"), Upstream::text("x"));
    let settings = json!({ "count": 5, "time_window": 60, "group": "g", "redis_database": 3,
        "redis_password": "s3cret" });
    let gateway = node(&upstream, "limit-count", &with(&redis, settings));
    assert_eq!(gateway.get("/").field("x-ratelimit-remaining"), Some("4"));
    assert!(redis.cli(&["INFO", "keyspace"]).contains("db3:keys=1"));
    let shop = json!({ "redis_username": "shop", "redis_password": "s3cret" });
    let mut settings = with(&redis, json!({ "count": 5, "time_window": 60 }));
    settings.as_object_mut().unwrap().extend(shop.as_object().unwrap().clone());
    assert_eq!(node(&upstream, "limit-count", &settings).get("/").status, 200);
    let mut settings = with(&redis, json!({ "rate": 1, "burst": 5, "key": "host" }));
    settings.as_object_mut().unwrap().extend(shop.as_object().unwrap().clone());
    let gateway = node(&upstream, "limit-req", &settings);
    assert_eq!(gateway.get("/").status, 500, "its keys are not the user's");
    eventually("the log says why", 10, || gateway.log().contains("redis refuses to count"));
    let settings = json!({ "count": 5, "time_window": 60, "redis_password": "wrong" });
    let gateway = node(&upstream, "limit-count", &with(&redis, settings));
    let reply = gateway.get("/");
    assert_eq!((reply.status, reply.json()["error_msg"].as_str()), (500, Some("failed to limit count")));
    eventually("the log says why", 10, || gateway.log().contains("WRONGPASS"));
    assert!(!gateway.log().contains("wrong\""), "a password in the log");
}

#[test]
fn each_way_of_being_refused_by_one_redis_has_a_line_of_its_own() {
    let (redis, upstream) = (Redis::with_password("s3cret"), Upstream::text("x"));
    let configurations = [
        ("password", json!({ "redis_password": "wrong" }), "AUTH: WRONGPASS"),
        ("user", json!({ "redis_username": "nobody", "redis_password": "s3cret" }), "AUTH: WRONGPASS"),
        ("database", json!({ "redis_password": "s3cret", "redis_database": 99 }), "SELECT: ERR"),
        // A server without TLS waits for the rest of a supposed command.
        (
            "tls",
            json!({ "redis_password": "s3cret", "redis_ssl": true, "redis_timeout": 1000 }),
            "no answer in time",
        ),
    ];
    let route = |(id, configuration, _): &(&str, Value, &str)| {
        let mut settings = with(&redis, json!({ "count": 5, "time_window": 60 }));
        settings.as_object_mut().unwrap().extend(configuration.as_object().unwrap().clone());
        json!({ "id": id, "uri": format!("/{id}"), "plugins": { "limit-count": settings }, "upstream": upstream.alone() })
    };
    let gateway = Gateway::start(&json!({ "routes": configurations.iter().map(route).collect::<Vec<_>>() }));
    for (id, _, why) in &configurations {
        assert_eq!(gateway.get(&format!("/{id}")).status, 500, "{id}");
        eventually("the log says why", 10, || {
            let log = gateway.log();
            log.lines().any(|line| line.contains("redis is out of reach") && line.contains(why))
        });
    }
    let log = gateway.log();
    assert_eq!(log.matches("redis is out of reach").count(), configurations.len(), "{log}");
    for detail in ["user=\"nobody\"", "database=99", "tls=true"] {
        assert!(log.contains(detail), "no {detail}: {log}");
    }
    assert!(!log.contains("s3cret"), "a password in the log");
}

#[test]
fn redis_is_spoken_to_over_tls_and_verified_where_asked() {
    let authority = certs::Authority::new("private authority");
    let pair = authority.sign("redis", &["localhost", "127.0.0.1"], certs::ecdsa());
    let (redis, upstream) = (Redis::tls(&pair), Upstream::text("x"));
    let settings = |verify: bool| {
        let settings =
            json!({ "count": 5, "time_window": 60, "redis_ssl": true, "redis_ssl_verify": verify });
        with(&redis, settings)
    };
    assert_eq!(node(&upstream, "limit-count", &settings(false)).get("/").status, 200);
    let strict = node(&upstream, "limit-count", &settings(true));
    assert_eq!(strict.get("/").status, 500, "nobody vouches for its certificate");
    eventually("the log says why", 10, || strict.log().contains("invalid peer certificate"));
    let roots = strict.scratch.write("roots.pem", &authority.cert);
    let options = Options { env: &[("SSL_CERT_FILE", &roots)], ..Options::default() };
    let routes = routes(&upstream, &json!({ "limit-count": settings(true) }));
    assert_eq!(Gateway::with(&routes, &options).get("/").status, 200);
}

#[test]
fn a_cluster_is_asked_where_keys_are_even_when_they_move() {
    let (nodes, upstream) = ([(); 3].map(|()| Redis::node()), Upstream::text("x"));
    redis::join(&nodes, 0);
    let settings = json!({ "count": 30, "time_window": 3600, "key": "http_who", "policy": "redis-cluster",
        "redis_cluster_nodes": [nodes[0].address()], "redis_cluster_name": "c", "redis_timeout": 20_000 });
    let gateways = [(); 2].map(|()| node(&upstream, "limit-count", &settings));
    let mut admitted = 0;
    for round in 0..4 {
        for client in 0..20 {
            let reply = gateways[round % 2].get_with("/", &format!("Who: {client}\r\n"));
            assert_eq!(
                reply.field("x-ratelimit-remaining"),
                Some((29 - round).to_string().as_str()),
                "{reply:?}"
            );
            admitted += 1;
        }
    }
    assert_eq!(admitted, 80);
    for node in &nodes {
        assert!(node.calls("evalsha") > 0, "every node has keys");
    }
    // All slots of the first node move to the second, key by key: nothing is lost or refused.
    let [from, to] = [0, 1].map(|at: usize| nodes[at].cli(&["CLUSTER", "MYID"]).trim().to_owned());
    let (first, port) = (nodes[0].address().to_string(), nodes[0].port);
    std::thread::scope(|scope| {
        let moving = scope.spawn(|| {
            let reshard = ["--cluster", "reshard", &first, "--cluster-from", &from, "--cluster-to", &to];
            let (status, out, errors) =
                run("redis-cli", &[&reshard[..], &["--cluster-slots", "5461", "--cluster-yes"]].concat());
            assert_eq!(status, 0, "{out}{errors}");
        });
        while !moving.is_finished() {
            let reply = gateways[0].get_with("/", "Who: somebody else\r\n");
            assert!(matches!(reply.status, 200 | 503), "{reply:?}");
        }
    });
    for client in 0..20 {
        let reply = gateways[1].get_with("/", &format!("Who: {client}\r\n"));
        assert_eq!(reply.field("x-ratelimit-remaining"), Some("25"), "{port} {client}");
    }
}

#[test]
fn a_cluster_that_loses_a_master_is_followed_to_its_replica() {
    let (mut nodes, upstream) = ([(); 6].map(|()| Redis::node()), Upstream::text("x"));
    redis::join(&nodes, 1);
    for node in &nodes {
        let is_settled = || {
            let role = node.cli(&["ROLE"]);
            role.starts_with("master") || role.contains("connected")
        };
        eventually("replicas follow", 60, is_settled);
    }
    let settings = json!({ "count": 1000, "time_window": 3600, "key": "http_who", "policy": "redis-cluster",
        "redis_cluster_nodes": [nodes[1].address(), nodes[2].address()], "redis_cluster_name": "c",
        "redis_timeout": 3000 });
    let gateway = node(&upstream, "limit-count", &settings);
    let all_are_counted =
        || (0..20).all(|client| gateway.get_with("/", &format!("Who: {client}\r\n")).status == 200);
    assert!(all_are_counted());
    let lost = nodes.iter().position(|node| node.cli(&["ROLE"]).starts_with("master")).expect("a master");
    nodes[lost].kill();
    eventually("its keys are counted again", 60, all_are_counted);
    let masters = nodes.iter().filter(|node| node.cli(&["ROLE"]).starts_with("master")).count();
    assert_eq!(masters, 3);
}

#[test]
fn a_node_that_left_its_cluster_is_asked_no_more() {
    let (nodes, upstream) = ([(); 3].map(|()| Redis::node()), Upstream::text("x"));
    redis::join(&nodes, 0);
    let settings = json!({ "count": 1000, "time_window": 3600, "key": "http_who", "policy": "redis-cluster",
        "redis_cluster_nodes": [nodes[2].address(), nodes[0].address()], "redis_cluster_name": "c",
        "redis_timeout": 20_000 });
    let gateway = node(&upstream, "limit-count", &settings);
    let all_are_counted =
        || (0..30).all(|client| gateway.get_with("/", &format!("Who: {client}\r\n")).status == 200);
    assert!(all_are_counted());
    // The node still runs and responds, but its slots belong to the first node.
    let removed_id = nodes[2].cli(&["CLUSTER", "MYID"]).trim().to_owned();
    for node in &nodes[..2] {
        node.cli(&["CLUSTER", "FORGET", &removed_id]);
    }
    nodes[2].cli(&["FLUSHALL"]);
    nodes[2].cli(&["CLUSTER", "RESET"]);
    nodes[0].cli(&["CLUSTER", "ADDSLOTSRANGE", "10923", "16383"]);
    for node in &nodes[..2] {
        eventually("the others have all slots", 30, || {
            let info = node.cli(&["CLUSTER", "INFO"]);
            info.contains("cluster_state:ok") && info.contains("cluster_slots_assigned:16384")
        });
    }
    // A cluster map that was just loaded is not reloaded at once.
    eventually("all are counted by the others", 30, all_are_counted);
}

#[test]
fn sentinels_are_followed_to_the_new_master() {
    let (mut master, upstream) = (Redis::start(), Upstream::text("x"));
    let replica = Redis::replica_of(&master);
    eventually("the replica follows", 20, || {
        replica.cli(&["INFO", "replication"]).contains("master_link_status:up")
    });
    let sentinel = Redis::sentinel(&master, "shop");
    eventually("the sentinel knows the replica", 30, || {
        sentinel.cli(&["SENTINEL", "replicas", "shop"]).contains(&replica.port.to_string())
    });
    let settings = json!({ "count": 1000, "time_window": 3600, "policy": "redis-sentinel",
        "redis_sentinels": [{ "host": "127.0.0.1", "port": sentinel.port }], "redis_master_name": "shop",
        "redis_connect_timeout": 3000, "redis_read_timeout": 3000 });
    let gateway = node(&upstream, "limit-count", &settings);
    for remaining in ["999", "998"] {
        assert_eq!(gateway.get("/").field("x-ratelimit-remaining"), Some(remaining));
    }
    eventually("the replica has what was counted", 20, || replica.cli(&["DBSIZE"]).trim() == "1");
    master.kill();
    let mut remaining = None;
    eventually("the new master counts on", 60, || {
        let reply = gateway.get("/");
        remaining = reply.field("x-ratelimit-remaining").map(str::to_owned);
        reply.status == 200
    });
    assert_eq!(remaining.as_deref(), Some("997"), "what the old one counted counts");
    assert!(replica.cli(&["ROLE"]).starts_with("master"));
}

#[test]
fn a_sentinel_that_names_a_server_that_is_gone_is_passed_over() {
    let (mut closed, master, upstream) = (Redis::start(), Redis::start(), Upstream::text("x"));
    let sentinels = [&closed, &master].map(|server| Redis::sentinel(server, "shop"));
    closed.kill();
    let named = sentinels.each_ref().map(|one| json!({ "host": "127.0.0.1", "port": one.port }));
    let settings = json!({ "count": 1000, "time_window": 3600, "policy": "redis-sentinel",
        "redis_sentinels": named, "redis_master_name": "shop",
        "redis_connect_timeout": 20_000, "redis_read_timeout": 20_000 });
    let gateway = node(&upstream, "limit-count", &settings);
    for remaining in ["999", "998"] {
        assert_eq!(gateway.get("/").field("x-ratelimit-remaining"), Some(remaining));
    }
}

#[test]
fn an_outage_costs_few_requests_their_deadline_and_is_told_once() {
    let (redis, upstream) = (Redis::start(), Upstream::text("x"));
    let limit = |id: &str, allow: bool| {
        let settings = json!({ "count": 1_000_000, "time_window": 3600, "group": id, "redis_timeout": 1500,
            "allow_degradation": allow });
        let plugins = json!({ "limit-count": with(&redis, settings) });
        json!({ "id": id, "uri": format!("/{id}"), "plugins": plugins, "upstream": upstream.alone() })
    };
    let gateway = Gateway::start(&json!({ "routes": [limit("strict", false), limit("lenient", true)] }));
    for path in ["/strict", "/lenient"] {
        assert_eq!(gateway.get(path).status, 200);
    }
    // The server hangs: connections stay open without replies.
    redis.freeze(true);
    for _ in 0..100 {
        assert_eq!(gateway.get("/strict").status, 500);
        assert_eq!(gateway.get("/lenient").status, 200);
    }
    let [timeouts, fast] = ["timeout", "down"]
        .map(|kind| gateway.metric(&format!("yumen_redis_faults_total{{kind=\"{kind}\"}}")));
    // Each of the two workers detects it once.
    assert!((1.0..=4.0).contains(&timeouts), "{timeouts} requests waited their whole time");
    assert!(fast >= 100.0, "{fast} requests did not wait");
    assert!(gateway.metric("yumen_redis_degraded_total") >= 100.0);
    redis.freeze(false);
    // Each worker detects the recovery by a request of its own.
    eventually("all workers count again", 30, || {
        (0..8).all(|_| gateway.get("/strict").status == 200)
            && gateway.log().contains("redis is reached again")
    });
    let log = gateway.log();
    let lines = |text: &str| log.lines().filter(|line| line.contains(text)).count();
    assert_eq!(lines("redis is out of reach"), 1, "{log}");
    assert_eq!(lines("redis is reached again"), 1, "{log}");
}

#[test]
fn a_server_that_was_restarted_is_connected_to_again() {
    let (mut redis, upstream) = (Redis::start(), Upstream::text("x"));
    let gateway = node(&upstream, "limit-count", &with(&redis, json!({ "count": 100, "time_window": 3600 })));
    let mut client = Client::connect(gateway.http);
    assert_eq!(client.get("/").field("x-ratelimit-remaining"), Some("99"));
    redis.kill();
    eventually("it is missed", 10, || client.get("/").status == 500);
    redis.restart();
    eventually("it counts again", 30, || client.get("/").status == 200);
}

#[test]
fn delayed_nodes_exceed_a_limit_by_no_more_than_an_interval_and_go_on_without_redis() {
    let (redis, upstream) = (Redis::start(), Upstream::text("x"));
    let settings = json!({ "count": 500, "time_window": 3600, "key": "host", "sync_interval": 0.1 });
    let nodes = [(); 2].map(|()| node(&upstream, "limit-count", &with(&redis, settings.clone())));
    // One node uses all but a hundred; the other one sees that with its first request and the next interval.
    assert_eq!(flood(&[&nodes[0]], 400), 400);
    let counted = || {
        let keys = redis.cli(&["KEYS", "plugin-limit-count:v1:*"]);
        let key = keys.lines().next().unwrap_or_default();
        redis.cli(&["GET", key]).trim().parse::<u64>().unwrap_or(0)
    };
    eventually("all is told", 10, || counted() == 400);
    assert_eq!(nodes[1].get("/").status, 200);
    eventually("the other learns of it", 10, || {
        let remaining = nodes[1].get("/").field("x-ratelimit-remaining").expect("a quota").parse::<u64>();
        remaining.expect("a number") < 100
    });
    // The count includes its own admissions meanwhile: from here on it is exact.
    let before = counted();
    let admitted = flood(&[&nodes[1]], 200);
    assert!(admitted <= 100, "{admitted}");
    eventually("all is told", 10, || counted() >= 500);
    assert_eq!(counted(), 500, "{before} before");
    let calls_before = redis.calls("evalsha") + redis.calls("eval");
    assert!(calls_before < 200, "{calls_before} questions for 600 requests");
}
