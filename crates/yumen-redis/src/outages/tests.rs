use yumen_plugin::outbound::{RedisAddress, RedisPlace};

use super::*;
use crate::testing::target;

#[test]
fn connections_to_one_server_that_are_made_otherwise_are_outages_of_their_own() {
    let server = RedisAddress { host: "outages.test".to_owned(), port: 1 };
    let plain = target(RedisPlace::Server(server.clone()));
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
    let whom = |target: &RedisTarget| Whom::new(server.to_string(), target);
    assert_eq!(whom(&plain), whom(&patient));
    let all: Vec<Whom> = [&[plain.clone()], &others[..]].concat().iter().map(whom).collect();
    let known = || {
        let known = OUT_OF_REACH.lock().unwrap_or_else(PoisonError::into_inner);
        known
            .iter()
            .filter(|(one, _)| one.server == server.to_string())
            .map(|(_, links)| *links)
            .sum::<usize>()
    };
    for whom in all.iter().chain(&all) {
        begin(whom, &RedisFault::Timeout);
    }
    assert_eq!(known(), 10);
    all.iter().chain(&all).for_each(|whom| end(whom, true));
    assert_eq!(known(), 0);
    end(&all[0], true);
    assert!(!format!("{:?}", all[2]).contains("secret"), "a password in the log");
}
