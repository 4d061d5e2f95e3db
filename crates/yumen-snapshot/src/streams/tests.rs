//! Tables of stream routes and the connections they get; against a naive search on random tables.

use std::sync::Arc;

use super::{AddressBlock, StreamLookup, StreamMatching, StreamRoute, StreamRouter};
use crate::route::RouteTarget;
use crate::testing::SeededRandom;

/// A route from `id port server remote sni` and perhaps a creation time; `-` stands for absent.
fn route(text: &str) -> Arc<StreamRoute> {
    let words: Vec<&str> = text.split(' ').collect();
    let given = |at: usize| Some(words[at]).filter(|word| *word != "-");
    let network = |at| given(at).map(|word| AddressBlock::parse(word).expect("a network"));
    let matching = StreamMatching {
        server_port: given(1).map(|port| port.parse().expect("a port")),
        server_addr: network(2),
        remote_addr: network(3),
        sni: given(4).map(Box::from),
        created: words.get(5).map_or(0, |created| created.parse().expect("a number")),
    };
    let info = yumen_plugin::RouteInfo { id: words[0].into(), ..Default::default() };
    Arc::new(StreamRoute { info, matching, target: RouteTarget::None, chain: Arc::default(), scopes: None })
}

fn router<'t>(routes: impl IntoIterator<Item = &'t str>) -> StreamRouter {
    let mut router = StreamRouter::default();
    routes.into_iter().for_each(|text| router.insert(&route(text)));
    router
}

/// Who gets the connection `remote server sni`; empty for nobody.
fn found(router: &StreamRouter, connection: &str) -> String {
    let words: Vec<&str> = connection.split(' ').collect();
    let ask = StreamLookup {
        remote: words[0].parse().expect("an address"),
        server: words[1].parse().expect("an end"),
        sni: Some(words[2]).filter(|word| *word != "-"),
    };
    router.find(&ask).map_or(String::new(), |route| route.info.id.to_string())
}

#[test]
fn the_route_that_asks_for_most_gets_the_connection() {
    let router = router([
        "any - - - -",
        "port 9100 - - -",
        "server 9100 10.0.0.0/8 - -",
        "one 9100 10.0.0.1 - -",
        "client 9100 - 192.0.2.0/24 -",
        "nearer 9100 - 192.0.2.7 -",
        "office - - 192.0.2.0/24 -",
        "name - - - a.example.com",
        "name-port 9200 - - a.example.com",
        "wild - - - *.example.com",
        "wilder - - - *.com",
        "odd - - - *shop.net",
        "all 9300 - - *",
        "v6 9100 - 2001:db8::/32 -",
    ]);
    for (connection, expected) in [
        ("198.51.100.1 127.0.0.1:9000 -", "any"),
        ("198.51.100.1 127.0.0.1:9100 -", "port"),
        ("198.51.100.1 10.9.0.1:9100 -", "server"),
        ("198.51.100.1 10.0.0.1:9100 -", "one"),
        ("192.0.2.9 127.0.0.1:9100 -", "client"),
        ("192.0.2.7 127.0.0.1:9100 -", "nearer"),
        ("::ffff:192.0.2.7 127.0.0.1:9100 -", "nearer"),
        ("192.0.2.9 10.0.0.1:9100 -", "one"),
        ("192.0.2.9 127.0.0.1:9000 -", "office"),
        ("2001:db8::5 [::1]:9100 -", "v6"),
        ("198.51.100.1 127.0.0.1:9000 a.example.com", "name"),
        ("198.51.100.1 127.0.0.1:9200 a.example.com", "name-port"),
        ("198.51.100.1 127.0.0.1:9100 b.a.example.com", "wild"),
        ("198.51.100.1 127.0.0.1:9100 example.com", "wilder"),
        ("198.51.100.1 127.0.0.1:9100 myshop.net", "odd"),
        ("198.51.100.1 127.0.0.1:9100 shop.net", "port"),
        ("198.51.100.1 127.0.0.1:9300 x.org", "all"),
        ("198.51.100.1 127.0.0.1:9300 -", "any"),
    ] {
        assert_eq!(found(&router, connection), expected, "{connection}");
    }
}

#[test]
fn of_equal_conditions_the_older_route_wins_and_then_the_lower_id() {
    let check = |routes: [&str; 2], expected: &str| {
        for order in [routes, [routes[1], routes[0]]] {
            assert_eq!(found(&router(order), "198.51.100.1 127.0.0.1:9100 a.b"), expected, "{order:?}");
        }
    };
    check(["1 - - - a.b 20", "2 - - - a.b 10"], "2");
    check(["b - - - a.b 10", "a - - - a.b 10"], "a");
    check(["1 - - - *.b 20", "2 - - - *.b 10"], "2");
    check(["1 9100 - - a.b 20", "2 - - - a.b 10"], "1");
}

#[test]
fn removed_keys_are_not_found() {
    let texts = ["1 9100 - - -", "2 - - - a.b", "3 - - - *.b", "4 9100 10.0.0.1 - -"];
    let mut router = router(texts);
    let before = router.clone();
    for text in texts {
        router.remove(&route(text));
    }
    assert!(router.is_empty());
    assert_eq!(before.all().count(), 4, "a clone keeps what it had");
    assert_eq!(found(&before, "10.0.0.9 10.0.0.1:9100 a.b"), "2");
}

#[test]
fn random_tables_give_what_a_search_through_all_gives() {
    let random = SeededRandom::new(3);
    for _ in 0..300 {
        let texts: Vec<String> = (0..random.below(12))
            .map(|id| {
                let port = random.one(&["-", "1", "2"]);
                let server = random.one(&["-", "10.0.0.0/8", "10.0.0.1", "::/0"]);
                let remote = random.one(&["-", "10.0.0.0/8", "10.0.0.0/31", "10.0.0.1"]);
                let sni = random.one(&["-", "-", "a.b", "x.a.b", "*.b", "*.a.b", "*b", "*"]);
                format!("{id:02} {port} {server} {remote} {sni}")
            })
            .collect();
        let router = router(texts.iter().map(String::as_str));
        for _ in 0..20 {
            let (remote, server) =
                (random.one(&["10.0.0.1", "10.0.0.9", "::1"]), random.one(&["10.0.0.1", "[::1]"]));
            let (port, sni) = (1 + random.below(3), random.one(&["-", "a.b", "x.a.b", "b", "q"]));
            let connection = format!("{remote} {server}:{port} {sni}");
            assert_eq!(found(&router, &connection), naive(&texts, &connection), "{connection} in {texts:?}");
        }
    }
}

/// The best of all that match, by the rule as it is documented.
fn naive(texts: &[String], connection: &str) -> String {
    let words: Vec<&str> = connection.split(' ').collect();
    let ask = StreamLookup {
        remote: words[0].parse().unwrap(),
        server: words[1].parse().unwrap(),
        sni: Some(words[2]).filter(|word| *word != "-"),
    };
    let bits = |word: &str| match word.split_once('/') {
        _ if word == "-" => -1,
        Some((_, bits)) => bits.parse().unwrap(),
        None => 999,
    };
    let merit = |text: &&String| {
        let words: Vec<&str> = text.split(' ').collect();
        let name = match words[4] {
            "-" => 0,
            wild if wild.starts_with('*') => wild.len(),
            _ => 1000,
        };
        (name, words[1] != "-", bits(words[2]), bits(words[3]), std::cmp::Reverse(words[0].to_owned()))
    };
    let matching = texts.iter().filter(|text| route(text).matching.differs(&ask).is_none());
    matching.max_by_key(merit).map_or(String::new(), |text| text[..2].to_owned())
}
