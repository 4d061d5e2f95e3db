use super::*;

fn points(text: &str, scale: RunScale, workers_max: usize) -> Vec<String> {
    let scenario = parse(text, scale).unwrap();
    scenario.points(workers_max).unwrap().into_iter().map(|point| point.label).collect()
}

/// A complete scenario that contains the given lines.
fn around(lines: &str) -> String {
    format!("name: x\ntitle: x\nabout: []\nseconds: 1\nrounds: 2\ntraps: []\nviews: []\n{lines}")
}

fn check_refused(lines: &str, words: &str) {
    let error = parse(&around(lines), RunScale::Normal).map(|_| ()).unwrap_err();
    let message = format!("{error:#}");
    assert!(message.contains(words), "{lines}: {message}");
}

#[test]
fn every_shipped_scenario_reads_at_every_scale() {
    for (name, _) in SHIPPED {
        for scale in [RunScale::Quick, RunScale::Normal, RunScale::Full] {
            let scenario = load(name, scale).unwrap_or_else(|error| panic!("{name}: {error:#}"));
            assert_eq!(scenario.name, *name);
            assert!(
                !scenario.traps.is_empty() && !scenario.views.is_empty() && !scenario.about.is_empty(),
                "{name}"
            );
            let points = scenario.points(64).unwrap();
            assert!(!points.is_empty());
            let mut ids: Vec<&str> = points.iter().map(|point| point.id.as_str()).collect();
            ids.sort_unstable();
            ids.dedup();
            assert_eq!(ids.len(), points.len(), "{name}: ids are unique");
        }
    }
}

#[test]
fn the_five_reports_are_all_repeated() {
    let reports: Vec<String> =
        SHIPPED.iter().filter_map(|(name, _)| load(name, RunScale::Normal).unwrap().report).collect();
    for report in ["R1", "R2", "R3", "R4", "R5"] {
        assert!(reports.iter().any(|found| found == report), "{report}");
    }
}

#[test]
fn full_scale_has_the_concurrencies_of_the_first_report() {
    let scenario = load("kong-vs-nginx", RunScale::Full).unwrap();
    let connections: Vec<usize> =
        scenario.points(64).unwrap().iter().map(|point| point.settings.clients.connections).collect();
    assert_eq!(connections, [1, 2, 4, 8, 10, 12, 14, 16, 18, 32, 50]);
    assert_eq!(scenario.seconds, 60.0);
}

#[test]
fn axes_are_multiplied_with_cases() {
    let text = around(
        "cases: [{ label: a }, { label: b, mock: true }]\nover: [{ parameter: connections, values: [1, 2] }]",
    );
    assert_eq!(
        points(&text, RunScale::Normal, 8),
        ["a, connections=1", "a, connections=2", "b, connections=1", "b, connections=2"]
    );
}

#[test]
fn workers_beyond_the_processors_are_done_once() {
    let text = around("over: [{ parameter: workers, values: [1, 2, 4, 8] }]");
    assert_eq!(points(&text, RunScale::Normal, 2), ["workers=1", "workers=2"]);
    assert_eq!(points(&text, RunScale::Normal, 1), ["workers=1"]);
}

#[test]
fn an_overlay_replaces_lists_and_merges_maps() {
    let text = around(
        "settings: { path: /1k, connections: 5 }\nover: [{ parameter: workers, values: [1, 2] }]\n\
         quick: { seconds: 0.5, settings: { connections: 3 }, over: [{ parameter: workers, values: [1] }] }",
    );
    let quick = parse(&text, RunScale::Quick).unwrap();
    let points = quick.points(8).unwrap();
    assert_eq!((quick.seconds, points.len()), (0.5, 1));
    assert_eq!(
        (points[0].settings.clients.connections, points[0].settings.clients.path.as_str()),
        (3, "/1k")
    );
    assert_eq!(parse(&text, RunScale::Full).unwrap().points(8).unwrap().len(), 2);
}

#[test]
fn mistakes_are_named_with_their_case() {
    check_refused("settings: { conections: 1 }", "unknown field `conections`");
    check_refused("cases: [{ workers: 0 }]", "case workers=0");
    check_refused("settings: { load: open }", "either rate or rate_share");
    check_refused("settings: { load: ramp, low: 5, high: 1, step: 1 }", "high is not below low");
    check_refused("settings: { changes: { endpoints: [1], stay_ms: [1] } }", "at least 2");
    check_refused("colour: red", "unknown field `colour`");
}

fn with_routes(routes: usize) -> CaseSettings {
    let gateway = GatewaySettings { routes, ..GatewaySettings::default() };
    CaseSettings { gateway, ..CaseSettings::default() }
}

#[test]
fn requests_are_spread_over_the_numbered_routes() {
    let of = |routes: usize| with_routes(routes).paths();
    assert_eq!(of(0), ["/ping"]);
    assert_eq!(of(2), ["/r/0", "/r/1"]);
    let many = of(100_000);
    assert_eq!((many.len(), many[0].as_str(), many[63].as_str()), (64, "/r/0", "/r/98437"));
}

#[test]
fn points_share_a_gateway_where_only_the_load_differs() {
    let base = CaseSettings::default();
    let loads = [
        ClientSettings { connections: 99, ..ClientSettings::default() },
        ClientSettings { headers: vec!["Connection: Close".to_owned()], ..ClientSettings::default() },
        ClientSettings { path: "/1k".to_owned(), ..ClientSettings::default() },
    ];
    let shape = |clients| CaseSettings { clients, ..base.clone() }.shape();
    assert!(loads.into_iter().all(|clients| shape(clients) == base.shape()));
    let idle_case = |connections| CaseSettings {
        load: CaseLoad::Idle,
        clients: ClientSettings { connections, ..ClientSettings::default() },
        ..base.clone()
    };
    assert_ne!(idle_case(5).shape(), idle_case(6).shape());
    assert_ne!(with_routes(1).shape(), base.shape());
}
