use yumen_config::Kind;

use super::ReferenceGraph;
use crate::compile::names::ObjectName;

#[test]
fn dependents_are_those_of_exactly_this_object() {
    let mut graph = ReferenceGraph::default();
    let upstream = |id: &str| ObjectName::new(Kind::Upstreams, id);
    let route = |id: &str| ObjectName::new(Kind::Routes, id);
    graph.add_all([upstream("1"), upstream("10")], &route("b"));
    graph.add(upstream("1"), &route("a"));
    graph.add(ObjectName::new(Kind::Services, "1"), &route("c"));
    let of = |graph: &ReferenceGraph, id| -> Vec<String> {
        graph.dependents_of(&upstream(id)).map(ToString::to_string).collect()
    };
    assert_eq!(of(&graph, "1"), ["routes/a", "routes/b"]);
    graph.remove_all([upstream("1"), upstream("10")], &route("b"));
    assert_eq!((of(&graph, "1"), of(&graph, "10")), (vec!["routes/a".to_owned()], Vec::new()));
}
