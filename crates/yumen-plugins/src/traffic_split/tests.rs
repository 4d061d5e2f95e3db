use std::sync::Arc;

use serde_json::{Value, json};
use yumen_config::resource::UpstreamSpec;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::proto::ProtoDescriptors;
use yumen_plugin::{ObjectLookup, UpstreamSlot};

use super::stride;
use crate::testing::PluginBench;

/// Upstreams `1` and `2` in slots 1 and 2; inline upstreams in slot 9.
struct Two;

impl ObjectLookup for Two {
    fn proto(&self, _: &str) -> Option<Arc<ProtoDescriptors>> {
        None
    }

    fn upstream(&self, id: &str) -> Option<UpstreamSlot> {
        let slot = id.parse().ok().filter(|slot| (1..=2).contains(slot))?;
        Some(UpstreamSlot::known(slot))
    }

    fn inline_upstream(&self, _: &str, _: UpstreamSpec) -> Result<UpstreamSlot, InvalidSettings> {
        Ok(UpstreamSlot::known(9))
    }
}

fn bench() -> PluginBench {
    let mut bench = PluginBench::new();
    bench.objects = Some(Box::new(Two));
    bench
}

/// Checks the slots of consecutive requests; 0 is the upstream of the route.
fn check(rules: Value, request: &str, expected: &[u32]) {
    let bench = bench();
    let plugin = bench.plugin("traffic-split", json!({ "rules": rules }));
    let go = |_: &u32| {
        let mut ex = bench.exchange(request);
        assert!(bench.admit(std::slice::from_ref(&plugin), &mut ex, request).is_none());
        ex.upstream.slot.unwrap_or(0)
    };
    assert_eq!(expected.iter().map(go).collect::<Vec<_>>(), expected, "{rules} {request}");
}

const GET: &str = "GET /a?v=1 HTTP/1.1";

#[test]
fn shares_are_exact_and_mixed() {
    let one = json!([{ "weighted_upstreams": [{ "upstream_id": 1, "weight": 3 }, { "weight": 2 }] }]);
    check(one, GET, &[1, 0, 1, 0, 1, 1, 0, 1, 0, 1]);
    let all = json!([{ "weighted_upstreams": [
        { "upstream_id": "1", "weight": 1 }, { "upstream_id": 2 }, { "weight": 0 }, { "upstream": {
            "nodes": { "127.0.0.1:1": 1 } } }] }]);
    check(all, GET, &[1, 2, 9, 1, 2, 9]);
    check(json!([{ "weighted_upstreams": [{ "upstream_id": 1, "weight": 0 }] }]), GET, &[0, 0]);
    check(json!([{}]), GET, &[0, 0]);
    check(json!([]), GET, &[0]);
}

#[test]
fn the_first_rule_that_matches_decides() {
    let rules = json!([
        { "match": [{ "vars": [["arg_v", "==", "2"]] }, { "vars": [["http_x", "==", "y"]] }],
          "weighted_upstreams": [{ "upstream_id": 2 }] },
        { "match": [{ "vars": [["arg_v", "==", "1"]] }], "weighted_upstreams": [{ "upstream_id": 1 }] },
    ]);
    check(rules.clone(), GET, &[1, 1]);
    check(rules.clone(), "GET /a?v=2 HTTP/1.1", &[2, 2]);
    check(rules.clone(), "GET /a?v=1 HTTP/1.1\nX: y", &[2]);
    check(rules, "GET /a HTTP/1.1", &[0]);
    check(json!([{ "match": [], "weighted_upstreams": [{ "upstream_id": 1 }] }]), GET, &[1]);
    let by_body = json!([{ "match": [{ "vars": [["post_arg_a", "==", "b"]] }],
        "weighted_upstreams": [{ "upstream_id": 1 }] }]);
    let post = "POST /a HTTP/1.1\nContent-Type: application/x-www-form-urlencoded\n\na=b";
    check(by_body, post, &[1]);
}

#[test]
fn a_cycle_comes_to_every_place_once() {
    for total in 1..200 {
        let mut positions: Vec<u64> = (0..total).map(|pick| pick * stride(total) % total).collect();
        positions.sort_unstable();
        assert!(positions.iter().copied().eq(0..total), "{total}");
    }
}

#[test]
fn missing_or_invalid_members_are_refused_by_path() {
    let check = |rules: Value, path: &str, message: &str| {
        let settings = json!({ "rules": rules });
        let refused = bench().build("traffic-split", settings).err().expect("it is refused");
        assert_eq!((refused.path.as_str(), refused.message.as_str()), (path, message), "{rules}");
    };
    check(
        json!([{ "weighted_upstreams": [{ "weight": 1 }, { "upstream_id": "7" }] }]),
        "rules[0].weighted_upstreams[1].upstream_id",
        "upstream 7 does not exist or is broken",
    );
    check(
        json!([{ "match": [{ "vars": [["a", "what", "b"]] }] }]),
        "rules[0].match",
        "failed to validate the 'vars' expression: invalid operator 'what'",
    );
    check(
        json!([{ "weighted_upstreams": [{ "upstream": { "scheme": "http" } }] }]),
        "rules[0].weighted_upstreams[0].upstream",
        "value should match only one schema, but matches none",
    );
    // Validation alone has no access to other objects.
    let alone = PluginBench::new().build(
        "traffic-split",
        json!({ "rules": [{ "weighted_upstreams": [
        { "upstream_id": "7" }] }] }),
    );
    assert!(alone.is_ok());
}
