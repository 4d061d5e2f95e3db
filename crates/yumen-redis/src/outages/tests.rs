use yumen_plugin::background::{RedisAddress, RedisTopology};

use super::*;
use crate::testing::target;

#[test]
fn connections_to_one_server_that_are_made_otherwise_are_outages_of_their_own() {
    let server = RedisAddress { host: "outages.test".to_owned(), port: 1 };
    let plain = target(RedisTopology::Server(server.clone()));
    let login = |username: &str, password: &str| RedisLogin {
        username: username.to_owned(),
        password: password.to_owned(),
    };
    let patient = RedisTarget { timeout_ms: 9, idle_ms: 9, ..plain.clone() };
    let others = [
        RedisTarget { database: 3, ..plain.clone() },
        RedisTarget { login: login("shop", "secret-1"), ..plain.clone() },
        RedisTarget { login: login("shop", "secret-2"), ..plain.clone() },
        RedisTarget { tls: Some(RedisTls { verify: true }), ..plain.clone() },
    ];
    let key = |target: &RedisTarget| RedisConnectKey::new(server.to_string(), target);
    assert_eq!(key(&plain), key(&patient));
    let all: Vec<RedisConnectKey> = std::iter::once(&plain).chain(&others).map(key).collect();
    let known = || {
        let known = OUTAGES.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().filter(|one| one.key.server == server.to_string()).map(|one| one.links).sum::<usize>()
    };
    for key in all.iter().chain(&all) {
        begin(key, &RedisFault::Timeout);
    }
    assert_eq!(known(), 10);
    all.iter().chain(&all).for_each(|key| end(key, true));
    assert_eq!(known(), 0);
    end(&all[0], true);
    assert!(!format!("{:?}", all[2]).contains("secret"), "a password in the log");
}

#[test]
fn new_outage_reason_is_logged_once() {
    let mut outage = RedisOutage {
        key: RedisConnectKey::new("a:1".to_owned(), &target(RedisTopology::Cluster(Vec::new()))),
        links: 1,
        reported: Vec::new(),
    };
    let why = |number: usize| RedisFault::Connect(format!("reason {number}"));
    assert!(outage.is_news(&RedisFault::Timeout));
    assert!(!outage.is_news(&RedisFault::Connect("no answer in time".to_owned())), "it is the same");
    assert!(outage.is_news(&why(0)));
    assert!(!outage.is_news(&why(0)) && !outage.is_news(&RedisFault::Timeout));
    assert_eq!((0..100).filter(|number| outage.is_news(&why(*number))).count(), REASONS_MAX - 2);
}
