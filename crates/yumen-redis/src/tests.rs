use super::*;
use yumen_plugin::background::RedisScript;

use crate::testing::{address, listen, run, serve, target, tools};

#[test]
fn clients_of_removed_settings_are_dropped() {
    run(async {
        let clients = RedisClients::new(tools());
        let topologies = [
            RedisTopology::Server(address("127.0.0.1", 1)),
            RedisTopology::Cluster(vec![address("127.0.0.1", 1)]),
            RedisTopology::Sentinel {
                sentinels: vec![address("127.0.0.1", 1)],
                master_name: "shop".to_owned(),
                login: yumen_plugin::background::RedisLogin::default(),
            },
        ];
        let first = Arc::new(target(topologies[0].clone()));
        clients.client(&first);
        for topology in topologies.iter().cycle().take(30) {
            clients.client(&Arc::new(target(topology.clone())));
        }
        assert_eq!(clients.known.borrow().len(), 2, "the one in use, and the last");
        assert!(clients.known.borrow().contains_key(&Arc::as_ptr(&first)));
    });
}

#[test]
fn closing_worker_sends_deferred_commands_and_awaits_replies() {
    run(async {
        let (listener, topology) = listen("127.0.0.1").await;
        serve(listener, |_| ":7\r\n".to_owned());
        let (clients, target) =
            (RedisClients::new(tools()), Arc::new(target(RedisTopology::Server(topology))));
        let (worker, replies) = (clients.clone(), Rc::<RefCell<Vec<Option<i64>>>>::default());
        let log = replies.clone();
        clients.spawn(Box::pin(async move {
            let is_running = worker.rest(Duration::from_secs(3600)).await;
            assert!(!is_running);
            // The second command is sent after the reply to the first.
            for _ in 0..2 {
                let call =
                    RedisScriptCall { script: RedisScript { text: "return 7" }, keys: vec![], args: vec![] };
                let answer = worker.redis(&target, call).await.expect("an answer");
                log.borrow_mut().push(answer.integer());
            }
        }));
        assert!(clients.rest(Duration::from_millis(1)).await, "it goes on until it ends");
        clients.close().await;
        assert_eq!(*replies.borrow(), [Some(7), Some(7)]);
        assert!(!clients.rest(Duration::from_secs(3600)).await, "there is nothing to wait for any more");
    });
}
