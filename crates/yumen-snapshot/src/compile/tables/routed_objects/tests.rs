use std::sync::Arc;

use yumen_plugin::RouteInfo;

use super::RoutedObjects;
use crate::route::RouteTarget;
use crate::streams::{StreamMatching, StreamRoute, StreamRouter};

fn route(port: u16) -> StreamRoute {
    StreamRoute {
        info: RouteInfo { id: "a".into(), ..RouteInfo::default() },
        matching: StreamMatching { server_port: Some(port), ..StreamMatching::default() },
        target: RouteTarget::None,
        chain: Arc::default(),
        scopes: None,
    }
}

/// The ports of the routes in the table.
fn ports(objects: &RoutedObjects<StreamRouter, ()>) -> Vec<u16> {
    objects.table().all().filter_map(|route| route.matching.server_port).collect()
}

#[test]
fn table_has_exactly_the_linked_and_enabled_version() {
    let mut objects = RoutedObjects::new(StreamRouter::default());
    objects.insert("a".into(), route(1), ());
    assert_eq!(ports(&objects), [0; 0], "staged and not linked");
    objects.link("a", route(1), true);
    assert_eq!(ports(&objects), [1]);
    objects.link("a", route(2), true);
    assert_eq!(ports(&objects), [2], "linked again under another port");
    objects.link("a", route(2), false);
    assert_eq!(ports(&objects), [0; 0], "disabled");
    objects.link("a", route(2), true);
    objects.insert("a".into(), route(3), ());
    assert_eq!(ports(&objects), [0; 0], "staged again");
    objects.link("a", route(3), true);
    assert!(objects.remove("a").is_some() && objects.get("a").is_none());
    assert_eq!(ports(&objects), [0; 0], "removed");
}
