use std::cell::Cell;
use std::rc::Rc;

use yumen_plugin::background::RedisTopology;

use super::*;
use crate::testing::{self, address, array, bulk, listen, run, serve, tools};

/// A server with a role.
async fn server(role: &'static str) -> RedisAddress {
    let (listener, address) = listen("127.0.0.1").await;
    serve(listener, move |command| match command {
        "PING" => "+PONG\r\n".to_owned(),
        _ => array(&[bulk(role)]),
    });
    address
}

/// A sentinel that names a master and counts its queries.
async fn sentinel(master: &RedisAddress) -> (RedisAddress, Rc<Cell<usize>>) {
    let (listener, address) = listen("127.0.0.1").await;
    let (answer, commands) = (array(&[bulk(&master.host), bulk(&master.port.to_string())]), Rc::default());
    let count: Rc<Cell<usize>> = Rc::clone(&commands);
    serve(listener, move |_| {
        count.set(count.get() + 1);
        answer.clone()
    });
    (address, commands)
}

/// A port without a listener.
async fn nowhere() -> RedisAddress {
    listen("127.0.0.1").await.1
}

fn sentinels(named: &[&RedisAddress]) -> (SentinelSet, RedisTarget) {
    let named: Vec<RedisAddress> = named.iter().copied().cloned().collect();
    let (master_name, login) = ("shop".to_owned(), RedisLogin::default());
    let sentinels = SentinelSet::new(&named, &master_name, &login);
    (sentinels, testing::target(RedisTopology::Sentinel { sentinels: named, master_name, login }))
}

#[test]
fn a_sentinel_whose_word_is_not_true_is_left_for_one_whose_is() {
    run(async {
        let (master, replica, nowhere) = (server("master").await, server("slave").await, nowhere().await);
        for stale in [&nowhere, &replica] {
            let ((wrong, commands), (right, _)) = (sentinel(stale).await, sentinel(&master).await);
            let (sentinels, target) = sentinels(&[&wrong, &right]);
            for _ in 0..3 {
                assert!(sentinels.connect(&tools(), &target).await.is_ok(), "{stale}");
            }
            assert_eq!(commands.get(), 1, "who was right is asked first from then on");
        }
    });
}

#[test]
fn a_master_that_takes_all_of_the_time_is_not_the_first_one_tried_again() {
    run(async {
        // The sentinel accepts and never responds.
        let (_silent, hangs) = listen("127.0.0.1").await;
        let ((wrong, _), (right, _)) = (sentinel(&hangs).await, sentinel(&server("master").await).await);
        let (sentinels, target) = sentinels(&[&wrong, &right]);
        let tools = tools();
        let first = tokio::time::timeout(Duration::from_millis(100), sentinels.connect(&tools, &target));
        assert!(first.await.is_err());
        assert!(sentinels.connect(&tools, &target).await.is_ok());
    });
}

#[test]
fn a_fault_says_who_named_whom_and_one_master_is_tried_once() {
    run(async {
        let (closed, unreachable) = (address("127.0.0.1", 1), nowhere().await);
        let ((one, _), (other, _)) = (sentinel(&closed).await, sentinel(&closed).await);
        let (sentinels, target) = sentinels(&[&unreachable, &one, &other]);
        let Err(RedisFault::Connect(why)) = sentinels.connect(&tools(), &target).await else {
            panic!("no master is there");
        };
        assert!(why.starts_with(&format!("sentinel {unreachable}: {unreachable}: ")), "{why}");
        assert_eq!(why.matches("names 127.0.0.1:1").count(), 1, "{why}");
    });
}
