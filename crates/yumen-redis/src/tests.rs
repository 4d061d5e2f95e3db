use super::*;
use crate::testing::{address, run, target, tools};

#[test]
fn clients_of_settings_that_nobody_names_any_more_are_forgotten() {
    run(async {
        let clients = Clients::new(tools());
        let places = [
            RedisPlace::Server(address("127.0.0.1", 1)),
            RedisPlace::Cluster(vec![address("127.0.0.1", 1)]),
            RedisPlace::Sentinel {
                sentinels: vec![address("127.0.0.1", 1)],
                master_name: "shop".to_owned(),
                login: yumen_plugin::outbound::RedisLogin::default(),
            },
        ];
        let kept = Arc::new(target(places[0].clone()));
        clients.client(&kept);
        for place in places.iter().cycle().take(30) {
            clients.client(&Arc::new(target(place.clone())));
        }
        assert_eq!(clients.known.borrow().len(), 2, "the one in use, and the last");
        assert!(clients.known.borrow().contains_key(&Arc::as_ptr(&kept)));
    });
}
