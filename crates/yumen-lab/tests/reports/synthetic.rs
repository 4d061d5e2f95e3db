//! Synthetic runs: seeded, plausible, and with every case that a report must handle.

use serde_json::{Map, Value, json};
use yumen_lab::record::*;
use yumen_load::{
    ErrorTotals, IdleSummary, LatencyPercentile, LatencySummary, LoadLatencies, LoadLimits, LoadPlan,
    LoadProtocols, LoadShape, LoadSummary, RampStep, RequestPlan, RequestTotals, SecondSummary,
};

/// A simulated gateway.
#[derive(Clone, Copy)]
pub(crate) struct Model {
    pub(crate) name: &'static str,
    /// Responses per second at saturation.
    pub(crate) capacity: f64,
    /// Median latency without a queue, in microseconds.
    pub(crate) base_us: f64,
    /// Growth of the latency with every further nine.
    pub(crate) tail: f64,
    /// Resident memory in MiB.
    pub(crate) memory_mib: f64,
}

pub(crate) const MODELS: [Model; 6] = [
    Model { name: "direct", capacity: 72_000.0, base_us: 60.0, tail: 1.5, memory_mib: 0.0 },
    Model { name: "yumen", capacity: 41_000.0, base_us: 110.0, tail: 1.9, memory_mib: 13.2 },
    Model { name: "nginx", capacity: 38_500.0, base_us: 115.0, tail: 2.3, memory_mib: 11.0 },
    Model { name: "haproxy", capacity: 36_900.0, base_us: 121.0, tail: 2.0, memory_mib: 19.4 },
    Model { name: "envoy", capacity: 17_200.0, base_us: 240.0, tail: 2.6, memory_mib: 52.7 },
    Model { name: "kong", capacity: 19_800.0, base_us: 310.0, tail: 3.4, memory_mib: 118.0 },
];

/// Pseudorandom numbers, equal in every run.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number from 0 to 1.
    pub(crate) fn share(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A number near 1, at most this far away.
    pub(crate) fn near_one(&mut self, by: f64) -> f64 {
        1.0 + (self.share() - 0.5) * 2.0 * by
    }
}

const PERCENTILES: [f64; 19] = [
    0.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 97.5, 99.0, 99.5, 99.9, 99.95, 99.99, 99.995, 99.999, 99.9995,
    99.9999, 99.99999, 100.0,
];

pub(crate) fn latency(count: u64, median_ns: f64, tail: f64, random: &mut Random) -> LatencySummary {
    let at = |percentile: f64, jitter: f64| {
        let nines = (-(1.0 - percentile / 100.0).max(1e-7).log10() - 0.3).max(-0.3);
        (median_ns * tail.powf(nines) * jitter) as u64
    };
    let mut percentiles: Vec<LatencyPercentile> = PERCENTILES
        .iter()
        .map(|percentile| LatencyPercentile {
            percentile: *percentile,
            ns: at(*percentile, random.near_one(0.03)),
        })
        .collect();
    percentiles.sort_by_key(|entry| entry.ns);
    for (entry, percentile) in percentiles.iter_mut().zip(PERCENTILES) {
        entry.percentile = percentile;
    }
    let (min_ns, max_ns) = (percentiles[0].ns, percentiles[PERCENTILES.len() - 1].ns);
    let mean_ns = median_ns * 1.1;
    LatencySummary {
        count,
        min_ns,
        mean_ns,
        stdev_ns: mean_ns / 3.0,
        max_ns,
        percentiles,
        histogram: String::new(),
    }
}

/// The parameters of a case, and their effects on a gateway.
#[derive(Clone)]
pub(crate) struct Point {
    pub(crate) label: String,
    pub(crate) parameters: Map<String, Value>,
    pub(crate) plan: LoadPlan,
    pub(crate) seconds: f64,
    /// Remaining share of the capacity.
    pub(crate) factor: f64,
    pub(crate) who: fn(&Model) -> BottleneckPart,
    /// Share of requests that fail.
    pub(crate) errors: fn(&Model) -> f64,
    /// New connections for each request.
    pub(crate) connections: Option<fn(&Model) -> f64>,
    pub(crate) changes: bool,
}

impl Point {
    pub(crate) fn new(label: &str, parameters: Value, plan: LoadPlan, factor: f64) -> Self {
        Self {
            label: label.to_owned(),
            parameters: parameters.as_object().cloned().unwrap_or_default(),
            plan,
            seconds: 6.0,
            factor,
            who: |_| BottleneckPart::Gateway,
            errors: |_| 0.0,
            connections: None,
            changes: false,
        }
    }
}

pub(crate) fn closed(connections: usize) -> LoadPlan {
    LoadPlan {
        connections,
        kind: LoadShape::Closed,
        limits: LoadLimits::duration_ms(6000),
        ..LoadPlan::default()
    }
}

pub(crate) fn round(point: &Point, model: &Model, number: usize, random: &mut Random) -> RoundRecord {
    let jitter = random.near_one(0.012);
    let offered = match point.plan.kind {
        LoadShape::Open { rate } => rate,
        _ => f64::INFINITY,
    };
    let rate = (model.capacity * point.factor * jitter).min(offered);
    let responses = (rate * point.seconds) as u64;
    let queue = (point.plan.connections as f64 * 1e9 / rate).max(model.base_us * 1e3);
    let median_ns = if offered.is_finite() { model.base_us * 1e3 } else { queue } * random.near_one(0.02);
    let failed = (responses as f64 * (point.errors)(model)) as u64;
    let plain = latency(responses, median_ns, model.tail, random);
    let stalls = if point.changes { model.tail * 1.8 } else { model.tail };
    let corrected = offered.is_finite().then(|| latency(responses, median_ns * 1.05, stalls, random));
    let errors = ErrorTotals { read: failed / 2, connect: failed - failed / 2, ..ErrorTotals::default() };
    let elapsed_ns = (point.seconds * 1e9) as u64;
    let summary = LoadSummary {
        format: yumen_load::FORMAT,
        plan: point.plan.clone(),
        elapsed_ns,
        protocols: LoadProtocols { protocol: "HTTP/1.1".to_owned(), tls: None },
        totals: RequestTotals { requests: responses + failed, responses, unanswered: 0 },
        errors,
        latencies: LoadLatencies { response: plain, corrected, ..LoadLatencies::default() },
        timeline: timeline(point, model, rate, median_ns, random),
        ramp: ramp(point, model, random),
        idle: idle(point, model, random),
        ..LoadSummary::default()
    };
    let per_request = point.connections.map(|share| share(model));
    RoundRecord {
        number,
        position: number,
        at_ms: number as u64 * 7000,
        usage: usage(point, model, responses, elapsed_ns, random),
        bottleneck: RoundBottleneck {
            who: if model.name == "direct" { BottleneckPart::Upstream } else { (point.who)(model) },
            why: "gateway 0.98 of 1 processor, upstream 0.51 of 1".to_owned(),
        },
        connections: per_request.map(|share| RoundConnections {
            client: (responses as f64 * share) as u64,
            door: Some((responses as f64 * share) as u64 + 3),
            upstream: (model.name != "direct").then_some(256),
            requests: responses,
        }),
        changes: changes(point, model, random),
        summary,
    }
}

fn timeline(
    point: &Point,
    model: &Model,
    rate: f64,
    median_ns: f64,
    random: &mut Random,
) -> Vec<SecondSummary> {
    let second = |second: u64, random: &mut Random| {
        let stalled = point.changes && second % 10 == 5 && model.tail > 2.1;
        let slow = if stalled { 60.0 } else { 1.0 };
        SecondSummary {
            second,
            span_ns: 1_000_000_000,
            responses: (rate * random.near_one(0.02) / if stalled { 1.4 } else { 1.0 }) as u64,
            errors: if stalled { (20.0 * random.share()) as u64 } else { 0 },
            p50_ns: median_ns as u64,
            p99_ns: (median_ns * model.tail.powi(2) * slow * random.near_one(0.2)) as u64,
            max_ns: (median_ns * model.tail.powi(4) * slow) as u64,
        }
    };
    (0..point.seconds as u64).map(|index| second(index, random)).collect()
}

fn changes(point: &Point, model: &Model, random: &mut Random) -> Vec<ChangeMark> {
    let count = if point.changes { (point.seconds / 10.0) as u64 } else { 0 };
    let mark = |index: u64, random: &mut Random| ChangeMark {
        at_ms: 5000 + index * 10_000,
        what: format!("{} endpoints", if index.is_multiple_of(2) { 7 } else { 5 }),
        took_ms: model.base_us / 20.0 * random.near_one(0.3),
        effective_ms: Some(model.base_us / 10.0),
        error: (model.name == "kong" && index == 1).then(|| "the interface answered 503".to_owned()),
    };
    (0..count).map(|index| mark(index, random)).collect()
}

fn ramp(point: &Point, model: &Model, random: &mut Random) -> Vec<RampStep> {
    let LoadShape::Ramp { low, high, step, calls, .. } = point.plan.kind else { return Vec::new() };
    let mut steps = Vec::new();
    let mut rate = low;
    while rate <= high {
        let demanded = rate * f64::from(calls);
        let possible = model.capacity * point.factor;
        let replies = demanded.min(possible) * random.near_one(0.01);
        let load = (demanded / possible).min(0.97);
        let errors = (1.0 - possible / demanded).max(0.0) * 100.0;
        steps.push(RampStep {
            connection_rate: rate,
            demanded_request_rate: demanded,
            reply_rate: replies,
            error_percent: errors,
            latency: latency(1000, model.base_us * 1e3 / (1.0 - load), model.tail, random),
            ..RampStep::default()
        });
        rate += step;
    }
    steps
}

fn idle(point: &Point, model: &Model, random: &mut Random) -> Option<IdleSummary> {
    let LoadShape::Idle { .. } = point.plan.kind else { return None };
    let wanted = point.plan.connections as u64;
    let each = model.memory_mib * 40.0 * random.near_one(0.02);
    let before = (model.memory_mib * 1_048_576.0) as u64;
    Some(IdleSummary {
        wanted,
        held: if model.name == "kong" { wanted - 17 } else { wanted },
        lost: if model.name == "kong" { 17 } else { 0 },
        opening_ns: wanted * 40_000,
        rss_before_bytes: before,
        rss_held_bytes: before + (each * wanted as f64) as u64,
        rss_per_connection_bytes: Some(each),
        ..IdleSummary::default()
    })
}

fn usage(point: &Point, model: &Model, responses: u64, elapsed_ns: u64, random: &mut Random) -> RoundUsage {
    let share = match (point.who)(model) {
        BottleneckPart::Gateway => 0.98,
        _ => 0.42,
    };
    let part = |share: f64, cpus: usize, mib: f64, random: &mut Random| {
        let cpu_ns = (elapsed_ns as f64 * share * cpus as f64 * random.near_one(0.01)) as u64;
        let sample = |index: u64, random: &mut Random| UsageSample {
            at_ms: index * 1000,
            cpus: share * cpus as f64 * random.near_one(0.03),
            rss_bytes: ((mib + index as f64 / 20.0) * 1_048_576.0) as u64,
        };
        PartUsage {
            cpus,
            cpu_ns,
            cpus_peak: share * cpus as f64,
            cpu_ns_per_request: cpu_ns as f64 / responses.max(1) as f64,
            rss_bytes_max: (mib * 1_048_576.0) as u64,
            samples: (0..=point.seconds as u64).map(|index| sample(index, random)).collect(),
        }
    };
    let gateway =
        if model.name == "direct" { PartUsage::default() } else { part(share, 1, model.memory_mib, random) };
    RoundUsage {
        gateway,
        upstream: part(0.55, 1, 9.0, random),
        generator: part(0.71, 1, 14.0, random),
        stolen: 0.002 * random.share(),
    }
}

/// A run of the points over models, with interleaved rounds.
pub(crate) fn run(
    name: &str,
    report: &str,
    views: Vec<ReportView>,
    points: &[Point],
    models: &[Model],
    rounds: usize,
    seed: u64,
) -> RunRecord {
    let mut random = Random::new(seed);
    let mut position = 0;
    let cases = points
        .iter()
        .map(|point| {
            let results = models.iter().map(|model| {
                let rounds = (1..=rounds).map(|number| {
                    position += 1;
                    RoundRecord { position, ..round(point, model, number, &mut random) }
                });
                TargetResult { target: model.name.to_owned(), rounds: rounds.collect(), missing: None }
            });
            let id = point.label.replace([' ', ',', ':'], "-");
            RunCase {
                id,
                label: point.label.clone(),
                parameters: point.parameters.clone(),
                results: results.collect(),
            }
        })
        .collect();
    RunRecord {
        format: FORMAT,
        started: "2026-11-21T14:03:00Z".to_owned(),
        took_ms: 754_000,
        command: format!("yumen-bench run {name} --seed {seed}"),
        seed,
        scale: RunScale::Quick,
        lab_version: "0.1.0".to_owned(),
        machine: machine(),
        doctor: doctor(),
        scenario: scenario(name, report, views, rounds),
        ceilings: vec![MeasuredCeiling {
            name: "link".to_owned(),
            connections: 16,
            request_bytes: 81,
            response_bytes: 181,
            per_second: 198_400.0,
            p50_ns: 41_000,
        }],
        targets: models.iter().map(target).collect(),
        skipped: vec![SkippedTarget {
            name: "apisix".to_owned(),
            reason: "not installed".to_owned(),
            hint: "see its own installation guide".to_owned(),
        }],
        cases,
        flames: Vec::new(),
    }
}

fn target(model: &Model) -> MeasuredTarget {
    let baseline = model.name == "direct";
    let text = format!("# {}\nworkers 1;\nkeepalive 256;\nserver \"<b>&amp;</b>\";\n", model.name);
    MeasuredTarget {
        name: model.name.to_owned(),
        adapter: model.name.to_owned(),
        role: if baseline { TargetRole::Baseline } else { TargetRole::Gateway },
        version: (!baseline).then(|| format!("{} 1.2.3", model.name)),
        program: None,
        configuration: if baseline {
            Default::default()
        } else {
            [(format!("{}.conf", model.name), text)].into()
        },
        command: if baseline {
            Vec::new()
        } else {
            vec![model.name.to_owned(), "-c".to_owned(), "x.conf".to_owned()]
        },
        changes_by: (!baseline).then(|| "rewrite and reload".to_owned()),
        notes: if model.name == "kong" {
            vec!["Has no setting for X; its default is 60.".to_owned()]
        } else {
            Vec::new()
        },
    }
}

fn machine() -> MachineRecord {
    MachineRecord {
        cpu: "AMD EPYC <test>".to_owned(),
        cpus: 2,
        hyper_threads: None,
        memory_bytes: 24 << 30,
        kernel: "Linux 6.18.44".to_owned(),
        os: "Debian GNU/Linux 12".to_owned(),
        governor: None,
        hypervisor: Some("KVM".to_owned()),
        pinning: CpuPinning { gateway: vec![0], upstream: vec![1], generator: vec![1] },
    }
}

fn doctor() -> Vec<DoctorFinding> {
    let finding = |name: &str, level, found: &str, wanted: &str, hint: Option<&str>| DoctorFinding {
        name: name.to_owned(),
        level,
        found: found.to_owned(),
        wanted: wanted.to_owned(),
        hint: hint.map(str::to_owned),
    };
    vec![
        finding("net.core.somaxconn", FindingLevel::Ok, "65535", "at least 4096", None),
        finding("open files", FindingLevel::Warning, "1024", "at least 65536", Some("`ulimit -n 65536`")),
        finding("governor", FindingLevel::Unknown, "unknown", "performance", None),
    ]
}

fn scenario(name: &str, report: &str, views: Vec<ReportView>, rounds: usize) -> ScenarioFacts {
    ScenarioFacts {
        name: name.to_owned(),
        title: format!("The synthetic run of {name}"),
        report: Some(report.to_owned()),
        about: vec![
            "Made by a seeded generator to see whether reports are right. Nothing here was measured."
                .to_owned(),
        ],
        traps: vec![TrapRecord {
            name: "close with a capital C".to_owned(),
            what: "Some servers read `Close` as keep-alive.".to_owned(),
            answer: "Both spellings are run, and connections are counted.".to_owned(),
            seen: Some("kong opened 1 connection for 100 requests".to_owned()),
        }],
        views,
        seconds: 6.0,
        rounds,
        fail_if: Vec::new(),
        source: format!("name: {name}\nrounds: {rounds}\n"),
    }
}

pub(crate) fn view(kind: ViewKind, over: Option<&str>) -> ReportView {
    ReportView { kind, over: over.map(str::to_owned), title: None }
}

/// R3: two spellings over connections; one gateway ignores `Close`, two fail at a thousand connections.
pub(crate) fn connection_close() -> RunRecord {
    let mut points = Vec::new();
    for field in ["Close", "close"] {
        for (connections, factor) in [(100, 0.62), (200, 0.61), (500, 0.58), (1000, 0.52)] {
            let plan = LoadPlan {
                request: RequestPlan {
                    headers: vec![("Connection".to_owned(), field.to_owned())],
                    ..RequestPlan::default()
                },
                ..closed(connections)
            };
            let label = format!("Connection: {field}, connections={connections}");
            let headers = json!({ "headers": [format!("Connection: {field}")], "connections": connections });
            let mut point = Point::new(&label, headers, plan, factor);
            point.connections =
                Some(if field == "Close" { |m| if m.name == "kong" { 0.01 } else { 1.0 } } else { |_| 1.0 });
            if connections == 1000 {
                point.errors = |m| if m.tail > 2.5 { 0.004 } else { 0.0 };
            }
            if connections == 100 {
                point.who =
                    |m| if m.name == "haproxy" { BottleneckPart::Generator } else { BottleneckPart::Gateway };
            }
            points.push(point);
        }
    }
    let views = vec![
        view(ViewKind::Curves, Some("connections")),
        view(ViewKind::Connections, None),
        view(ViewKind::Table, None),
    ];
    run("connection-close", "R3", views, &points, &MODELS, 5, 3)
}

/// R2: a constant rate, with and without changes.
pub(crate) fn dynamic_endpoints() -> RunRecord {
    let open = |label: &str, changes: bool| {
        let plan = LoadPlan { kind: LoadShape::Open { rate: 9000.0 }, ..closed(400) };
        let mut point = Point::new(label, json!({ "changes": changes }), plan, 1.0);
        point.changes = changes;
        point.seconds = 66.0;
        point.who = |_| BottleneckPart::Load;
        point
    };
    let views =
        vec![view(ViewKind::Percentiles, None), view(ViewKind::Timeline, None), view(ViewKind::Table, None)];
    run("dynamic-endpoints", "R2", views, &[open("static", false), open("dynamic", true)], &MODELS[1..], 3, 2)
}

/// R4: plugins over workers.
pub(crate) fn plugin_cost() -> RunRecord {
    let mut points = Vec::new();
    for (label, factor) in [
        ("no plugin", 1.0),
        ("no plugin, 100 routes", 0.98),
        ("limit-count", 0.9),
        ("key-auth", 0.93),
        ("key-auth and limit-count, 100 routes, 100 consumers", 0.81),
    ] {
        for workers in [1, 2] {
            let label = format!("{label}, workers={workers}");
            let parameters = json!({ "plugins": label.split(", workers").next(), "workers": workers });
            let mut point =
                Point::new(&label, parameters, closed(16), factor * if workers == 2 { 1.4 } else { 1.0 });
            if workers == 2 {
                point.who = |_| BottleneckPart::Machine;
            }
            points.push(point);
        }
    }
    let views = vec![
        view(ViewKind::Table, None),
        view(ViewKind::Baseline, None),
        view(ViewKind::Curves, Some("workers")),
    ];
    let mut run = run("plugin-cost", "R4", views, &points, &MODELS, 5, 4);
    run.flames = vec![flame("yumen", 0.01), flame("kong", 0.3)];
    run.scenario.fail_if = vec!["errors>1%".to_owned(), "kong:p99<1us".to_owned()];
    run
}

/// A call tree of three functions below a program.
fn flame(target: &str, unknown: f64) -> FlameProfile {
    let frame = |name, caller, samples| FlameFrame { name, caller, samples };
    FlameProfile {
        case: "no plugin, workers=1".to_owned(),
        target: target.to_owned(),
        method: "unwind tables".to_owned(),
        samples: 1000,
        unknown,
        names: ["gateway-0", "main", "serve<T>", "write & read"].map(str::to_owned).to_vec(),
        frames: vec![
            frame(0, None, 1000),
            frame(1, Some(0), 990),
            frame(2, Some(1), 700),
            frame(3, Some(2), 300),
        ],
        missing: None,
    }
}

/// R5: a rate that rises beyond the capacity of one gateway.
pub(crate) fn rate_ramp() -> RunRecord {
    let kind =
        LoadShape::Ramp { low: 200.0, high: 2000.0, step: 200.0, calls: 10, connections_per_step: 5000 };
    let plan = LoadPlan { kind, ..closed(100) };
    let mut point = Point::new("all", json!({}), plan, 1.0);
    point.who = |_| BottleneckPart::Load;
    run("rate-ramp", "R5", vec![view(ViewKind::Ramp, None)], &[point], &MODELS, 3, 5)
}

/// Idle connections.
pub(crate) fn idle_connections() -> RunRecord {
    let point = |connections: usize| {
        let kind = LoadShape::Idle { hold_ms: 5000, requests_first: 1, pids: Vec::new() };
        let plan = LoadPlan { kind, ..closed(connections) };
        let label = format!("connections={connections}");
        let mut point = Point::new(&label, json!({ "connections": connections }), plan, 0.001);
        point.who = |_| BottleneckPart::Load;
        point
    };
    let points = [point(1000), point(10_000), point(100_000)];
    run(
        "idle-connections",
        "R4",
        vec![view(ViewKind::IdleMemory, Some("connections"))],
        &points,
        &MODELS[1..],
        3,
        6,
    )
}

/// The smallest possible run, with texts that resemble markup.
pub(crate) fn smallest() -> RunRecord {
    let points = [Point::new("<script>alert(1)</script> & `odd", json!({}), closed(1), 0.2)];
    let mut run = run("smallest", "R1", Vec::new(), &points, &MODELS[1..3], 1, 1);
    run.scenario.title = "A | pipe, a *star*, an <img src=x> and \u{1b}[31mcolour".to_owned();
    run.targets[1].notes = vec!["]]> --> </style></script>".to_owned()];
    run.cases[0].results[1] = TargetResult {
        target: "nginx".to_owned(),
        rounds: Vec::new(),
        missing: Some("cannot do key-auth".to_owned()),
    };
    run
}

/// All synthetic runs by name.
pub(crate) fn all() -> Vec<RunRecord> {
    vec![connection_close(), dynamic_endpoints(), plugin_cost(), rate_ramp(), idle_connections(), smallest()]
}
