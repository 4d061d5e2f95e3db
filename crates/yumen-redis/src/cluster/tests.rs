use yumen_plugin::outbound::RedisLogin;

use super::*;

fn address(host: &str, port: u16) -> RedisAddress {
    RedisAddress { host: host.to_owned(), port }
}

#[test]
fn slots_are_those_of_the_specification() {
    // The first is the check value of the specification, the others what `CLUSTER KEYSLOT` answers.
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
fn redirections_are_read_as_servers_write_them() {
    let target = RedisTarget {
        place: RedisPlace::Cluster(vec![address("seed", 7000)]),
        login: RedisLogin::default(),
        database: 0,
        tls: None,
        timeout_ms: 1000,
        idle_ms: 1000,
    };
    let check = |why: &str, expected| assert_eq!(redirect(why, &target), expected, "{why}");
    check("MOVED 3999 127.0.0.1:6381", Some(Redirect::Moved(address("127.0.0.1", 6381))));
    check("ASK 3999 ::1:6381", Some(Redirect::Ask(address("::1", 6381))));
    check("MOVED 3999 :6381", Some(Redirect::Moved(address("seed", 6381))));
    for other in ["NOSCRIPT No matching script.", "MOVED", "MOVED 1 nowhere", "ERR a b:1", ""] {
        check(other, None);
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
    let asked = address("seed", 7000);
    let map = RedisReply::Array(vec![item(0, 5, "10.0.0.1", 1), item(6, 16_383, "", 2)]);
    let expected = vec![(0, 5, address("10.0.0.1", 1)), (6, 16_383, address("seed", 2))];
    assert_eq!(ranges(&map, &asked), Some(expected));
    for bad in [item(0, 16_384, "a", 1), item(5, 4, "a", 1), item(-1, 4, "a", 1), item(0, 1, "a", 70_000)] {
        assert_eq!(ranges(&RedisReply::Array(vec![bad]), &asked), None);
    }
    assert_eq!(ranges(&RedisReply::Array(Vec::new()), &asked), None, "an empty map");
    assert_eq!(ranges(&RedisReply::Nil, &asked), None);
}
