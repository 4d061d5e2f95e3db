//! Which names are asked for, and whose what is known of them is.

use std::net::IpAddr;

use serde_json::json;
use yumen_config::Kind;

use crate::compile::tests::{compiler, found, get, nodes, nodes_in, put, route};
use crate::compile::{Compiler, ConfigChange};

#[test]
fn names_are_resolved_by_whoever_asks_and_stale_addresses_beat_none() {
    let mut compiler = compiler();
    let compiled = compiler.apply(vec![route("a", nodes_in("x.local:81"))], 1);
    assert_eq!(get(&compiled, "/a"), "a empty");
    assert_eq!(compiler.hosts().map(|(host, _)| host).collect::<Vec<_>>(), ["x.local"]);
    let resolved = |addrs: &[&str]| ConfigChange::Resolved {
        host: "x.local".into(),
        addrs: addrs.iter().map(|text| text.parse::<IpAddr>().unwrap()).collect(),
    };
    assert_eq!(get(&compiler.apply(vec![resolved(&["10.0.0.7"])], 2), "/a"), "a 10.0.0.7:81");
    assert_eq!(get(&compiler.apply(vec![resolved(&[])], 3), "/a"), "a 10.0.0.7:81");
    assert_eq!(found(&compiler.problems()), ["warning routes/a at nodes"]);
    let renamed =
        compiler.apply(vec![route("a", json!({ "desc": "x", "upstream": nodes("x.local:82") }))], 4);
    assert_eq!(get(&renamed, "/a"), "a 10.0.0.7:82", "what is known of a name outlives a change of its user");
    compiler.apply(vec![ConfigChange::Delete(Kind::Routes, "a".into())], 5);
    assert_eq!((compiler.hosts().count(), compiler.problems().len()), (0, 0));
}

#[test]
fn what_is_known_of_a_name_goes_to_who_takes_the_place_of_its_user() {
    let mut compiler = compiler();
    let uses = |id: &str| json!({ "upstream_id": id });
    let upstream = |id: &str| put(Kind::Upstreams, id, nodes("x.local:81"));
    let number = |compiler: &Compiler| compiler.hosts().map(|(_, number)| number).next();
    compiler.apply(vec![upstream("u"), route("a", uses("u"))], 1);
    let addrs = vec!["10.0.0.7".parse().unwrap()];
    compiler.apply(vec![ConfigChange::Resolved { host: "x.local".into(), addrs }], 2);
    let (first, number_of) = (number(&compiler), compiler.input_number());
    let renamed = compiler.apply(
        vec![ConfigChange::Delete(Kind::Upstreams, "u".into()), upstream("v"), route("a", uses("v"))],
        3,
    );
    assert_eq!(get(&renamed, "/a"), "a 10.0.0.7:81");
    let inline = compiler.apply(
        vec![
            ConfigChange::Delete(Kind::Upstreams, "v".into()),
            route("a", json!({ "upstream": nodes("x.local:81") })),
        ],
        4,
    );
    assert_eq!(get(&inline, "/a"), "a 10.0.0.7:81");
    assert_eq!((number(&compiler), compiler.input_number()), (first, number_of), "nobody is asked anew");
    // Whoever follows may see no more of this than the end, where the name is wanted as before.
    compiler.apply(vec![ConfigChange::Delete(Kind::Routes, "a".into())], 5);
    let again = compiler.apply(vec![route("b", json!({ "upstream": nodes("x.local:81") }))], 6);
    assert_eq!(get(&again, "/b"), "b empty");
    assert!(number(&compiler) > first, "nothing is known of it any more");
}

#[test]
fn who_asks_for_addresses_is_told_when_other_names_are_wanted() {
    let mut compiler = compiler();
    let upstream = |id: &str, value| put(Kind::Upstreams, id, value);
    let service = json!({ "service_name": "s", "discovery_type": "dns" });
    for (change, hosts, services, is_news) in [
        (upstream("1", nodes("10.0.0.1")), 0, 0, false),
        (upstream("1", nodes("a.test")), 1, 0, true),
        (upstream("2", nodes("a.test")), 1, 0, false),
        (upstream("1", nodes("b.test")), 2, 0, true),
        (upstream("1", nodes("c.test")), 2, 0, true),
        (upstream("1", service.clone()), 1, 1, true),
        (upstream("3", service), 1, 1, false),
        (ConfigChange::Delete(Kind::Upstreams, "3".into()), 1, 1, false),
        (ConfigChange::Delete(Kind::Upstreams, "1".into()), 1, 0, true),
    ] {
        let (what, before) = (format!("{change:?}"), compiler.input_number());
        compiler.apply(vec![change], 1);
        assert_eq!((compiler.hosts().count(), compiler.services().count()), (hosts, services), "{what}");
        assert_eq!(compiler.input_number() != before, is_news, "{what}");
    }
}
