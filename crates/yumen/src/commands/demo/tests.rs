//! The samples of `yumen demo` agree with each other.

use super::*;

#[test]
fn the_services_of_the_samples_are_replaced() {
    let bound: Vec<SocketAddr> =
        ["127.0.0.1:40001", "127.0.0.1:40002"].map(|text| text.parse().unwrap()).into();
    let args = DemoArgs {
        listen: "127.0.0.1:9080".parse().unwrap(),
        admin: "127.0.0.1:9180".parse().unwrap(),
        status: "127.0.0.1:9091".parse().unwrap(),
        rate: 0,
    };
    let given = resources(&args, &bound, "data");
    for (written, bound) in SERVICES.iter().zip(&bound) {
        assert!(DOCUMENT.contains(written), "{written} is not in the samples");
        assert!(
            given.document.contains(&bound.to_string()) && !given.document.contains(written),
            "{written}"
        );
    }
    assert!(given.on_ready.is_none(), "a rate of 0 sends nothing");
}

#[test]
fn every_route_of_the_samples_has_a_sample_request() {
    let (resources, problems) = yumen_config::document::parse(DOCUMENT, &|_| None);
    assert!(problems.is_empty(), "{problems:?}");
    let routes = resources.iter().filter(|one| one.kind == yumen_config::Kind::Routes);
    for route in routes {
        let spec: serde_json::Value = serde_json::from_str(&route.json).expect("JSON");
        let uri = spec["uri"].as_str().expect("a uri").trim_end_matches('*');
        assert!(traffic::SAMPLES.iter().any(|sample| sample.target.starts_with(uri)), "no request to {uri}");
    }
}
