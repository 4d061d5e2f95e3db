use yumen_plugin::background::RedisScript;

use super::*;
use crate::testing::{self, address, array, bulk, listen, run, serve, tools};

#[test]
fn slots_are_those_of_the_specification() {
    // The first is the check value of the specification, the others are `CLUSTER KEYSLOT` replies.
    for (key, expected) in [
        ("123456789", 0x31c3),
        ("foo", 12182),
        ("{user1000}.following", slot(b"user1000")),
        ("foo{}{bar}", slot(b"foo{}{bar}")),
        ("foo{{bar}}zap", slot(b"{bar")),
        ("foo{bar}{zap}", slot(b"bar")),
        ("bar", 5061),
    ] {
        assert_eq!(slot(key.as_bytes()), expected, "{key}");
    }
}

#[test]
fn refusals_are_read_as_servers_write_them() {
    let node = address("seed", 7000);
    let check = |why: &str, expected| assert_eq!(refusal(why, &node), expected, "{why}");
    check("MOVED 3999 127.0.0.1:6381", ClusterErrorKind::Moved(address("127.0.0.1", 6381)));
    check("ASK 3999 ::1:6381", ClusterErrorKind::Ask(address("::1", 6381)));
    check("MOVED 3999 :6381", ClusterErrorKind::Moved(address("seed", 6381)));
    check("ASK 3999 :6381", ClusterErrorKind::Ask(address("seed", 6381)));
    for not_served in [
        "CLUSTERDOWN Hash slot not served",
        "CLUSTERDOWN The cluster is down",
        "LOADING Redis is loading the dataset in memory",
        "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
        "READONLY You can't write against a read only replica.",
        "MOVED 3999 ?:6381",
        "ASK 3999 ?:6381",
    ] {
        check(not_served, ClusterErrorKind::NotServed);
    }
    check("TRYAGAIN Multiple keys request during rehashing of slot", ClusterErrorKind::SlotMigrating);
    check("NOSCRIPT No matching script.", ClusterErrorKind::UnknownScript);
    for other in ["MOVED", "MOVED 1 nowhere", "ERR a b:1", "NOPERM no", "CLUSTERDOWNED", ""] {
        check(other, ClusterErrorKind::Final);
    }
}

#[test]
fn the_map_is_read_and_nothing_else_is_taken_for_one() {
    let text = |text: &str| RedisReply::Text(text.as_bytes().to_vec());
    let number = RedisReply::Integer;
    let item = |first, last, host: &str, port| {
        let master = RedisReply::Array(vec![text(host), number(port), text("id")]);
        RedisReply::Array(vec![number(first), number(last), master])
    };
    let node = address("seed", 7000);
    let map = RedisReply::Array(vec![item(0, 5, "10.0.0.1", 1), item(6, 16_383, "", 2)]);
    let expected = vec![(0, 5, address("10.0.0.1", 1)), (6, 16_383, address("seed", 2))];
    assert_eq!(ranges(&map, &node), Some(expected));
    let ip = RedisReply::Array(vec![text("hostname"), text(""), text("ip"), text("10.0.0.3")]);
    for (extra, expected) in [(vec![ip], "10.0.0.3"), (vec![], "seed"), (vec![number(1)], "seed")] {
        let master = [vec![text("?"), number(3), text("id")], extra].concat();
        let map =
            RedisReply::Array(vec![RedisReply::Array(vec![number(0), number(9), RedisReply::Array(master)])]);
        assert_eq!(ranges(&map, &node), Some(vec![(0, 9, address(expected, 3))]), "a node without a name");
    }
    for bad in [item(0, 16_384, "a", 1), item(5, 4, "a", 1), item(-1, 4, "a", 1), item(0, 1, "a", 70_000)] {
        assert_eq!(ranges(&RedisReply::Array(vec![bad]), &node), None);
    }
    assert_eq!(ranges(&RedisReply::Array(Vec::new()), &node), None, "an empty map");
    assert_eq!(ranges(&RedisReply::Nil, &node), None);
}

/// A call with a key in slot 12182.
fn call() -> RedisScriptCall {
    RedisScriptCall {
        script: RedisScript { text: "return 1" },
        keys: vec![b"foo".to_vec()],
        args: Vec::new(),
    }
}

fn cluster(named: &[&RedisAddress]) -> Rc<RedisCluster> {
    let topology = RedisTopology::Cluster(named.iter().copied().cloned().collect());
    RedisCluster::new(&tools(), &Rc::new(testing::target(topology)))
}

/// The encoded map of a cluster in which one node has all slots.
fn map(host: &str, port: u16) -> String {
    let master = array(&[bulk(host), format!(":{port}\r\n"), bulk("id")]);
    array(&[array(&[":0\r\n".to_owned(), ":16383\r\n".to_owned(), master])])
}

/// The default replies of a node.
fn node(command: &str, map: &str, state: &str, script: &str) -> String {
    match command {
        "PING" => "+PONG\r\n".to_owned(),
        "CLUSTER SLOTS" => map.to_owned(),
        "CLUSTER INFO" => bulk(&format!("cluster_state:{state}\r\ncluster_slots_assigned:16384\r\n")),
        "ASKING" => "+OK\r\n".to_owned(),
        _ => script.to_owned(),
    }
}

async fn send_script(cluster: &Rc<RedisCluster>) -> RedisResult {
    cluster.clone().run(Rc::default(), call()).await
}

#[test]
fn a_node_that_serves_a_slot_no_more_is_left_for_the_one_that_does() {
    for (code, map_of_it) in [
        // The node was removed from the cluster and has no map.
        ("CLUSTERDOWN Hash slot not served", None),
        // The node is cut off and returns the old map.
        ("CLUSTERDOWN The cluster is down", Some("fail")),
        ("LOADING Redis is loading the dataset in memory", Some("ok")),
        ("READONLY You can't write against a read only replica.", Some("ok")),
    ] {
        run(async {
            let ((first, left), (second, stays)) = (listen("127.0.0.1").await, listen("127.0.0.2").await);
            let has_left = Rc::new(Cell::new(false));
            let (is_removed, old, new) =
                (has_left.clone(), map(&left.host, left.port), map(&stays.host, stays.port));
            let (script, of_all) = (format!("-{code}\r\n"), new.clone());
            serve(first, move |command| match (is_removed.get(), map_of_it) {
                (false, _) => node(command, &old, "ok", ":1\r\n"),
                (true, None) => node(command, "*0\r\n", "fail", &script),
                (true, Some("fail")) => node(command, &old, "fail", &script),
                (true, Some(state)) => node(command, &new, state, &script),
            });
            serve(second, move |command| node(command, &of_all, "ok", ":2\r\n"));
            let cluster = cluster(&[&left, &stays]);
            assert_eq!(send_script(&cluster).await, Ok(RedisReply::Integer(1)), "{code}");
            has_left.set(true);
            tokio::time::sleep(Duration::from_millis(REFRESH_MS)).await;
            for _ in 0..3 {
                assert_eq!(send_script(&cluster).await, Ok(RedisReply::Integer(2)), "{code}");
            }
        });
    }
}

#[test]
fn a_cluster_that_serves_nothing_is_asked_for_its_map_now_and_then() {
    run(async {
        let (listener, alone) = listen("127.0.0.1").await;
        let (slot_map, maps) = (map(&alone.host, alone.port), Rc::new(Cell::new(0)));
        let counted = maps.clone();
        serve(listener, move |command| {
            counted.set(counted.get() + usize::from(command == "CLUSTER SLOTS"));
            node(command, &slot_map, "fail", "-CLUSTERDOWN The cluster is down\r\n")
        });
        let cluster = cluster(&[&alone]);
        let begun = std::time::Instant::now();
        for _ in 0..200 {
            assert!(
                matches!(send_script(&cluster).await, Err(RedisFault::Refused(why)) if why.contains("is down"))
            );
        }
        let most = 2 + begun.elapsed().as_millis() as u64 / REFRESH_MS;
        assert!(maps.get() as u64 <= most, "{} times", maps.get());
    });
}

#[test]
fn a_redirection_without_a_host_leads_to_that_of_the_node_that_was_asked() {
    run(async {
        // Both nodes are on one host, which is not the first in the settings.
        let ((first, first_node), (second, other)) = (listen("127.0.0.2").await, listen("127.0.0.2").await);
        let (slot_map, port) = (map("", first_node.port), other.port);
        let slot_map_copy = slot_map.clone();
        serve(first, move |command| node(command, &slot_map, "ok", &format!("-ASK 12182 :{port}\r\n")));
        let has_the_text = Cell::new(false);
        serve(second, move |command| match command.split(' ').next() {
            Some("EVALSHA") => "-NOSCRIPT No matching script.\r\n".to_owned(),
            Some("EVAL") => {
                has_the_text.set(true);
                ":2\r\n".to_owned()
            }
            _ => node(command, &slot_map_copy, "ok", "+OK\r\n"),
        });
        let (_, silent) = listen("127.0.0.1").await;
        let cluster = cluster(&[&silent, &first_node]);
        assert_eq!(send_script(&cluster).await, Ok(RedisReply::Integer(2)));
    });
}

#[test]
fn keys_that_are_just_being_moved_are_asked_for_again() {
    run(async {
        let (listener, alone) = listen("127.0.0.1").await;
        let (slot_map, times) = (map(&alone.host, alone.port), Cell::new(0));
        serve(listener, move |command| {
            times.set(times.get() + usize::from(command.starts_with("EVALSHA")));
            let moving = "-TRYAGAIN Multiple keys request during rehashing of slot\r\n";
            node(command, &slot_map, "ok", if times.get() < 3 { moving } else { ":3\r\n" })
        });
        assert_eq!(send_script(&cluster(&[&alone])).await, Ok(RedisReply::Integer(3)));
    });
}
