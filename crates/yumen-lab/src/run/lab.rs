//! A whole run: points put together by what gateways must be started with, rounds in random order, one target
//! loaded at a time, everything recorded.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::ceilings;
use super::entrants::{DIRECT, Entrant, Kind};
use super::gateway::{Gateway, Site};
use super::interrupt;
use super::order::Dice;
use super::pinning;
use super::round::{self, Bench, Subject};
use super::sights;
use super::upstreams::Upstreams;
use crate::doctor::{self, Facts};
use crate::record::{
    Case, Ceiling, FORMAT, Pinning, Round, Run, Scale, ScenarioFacts, Skipped, Target, TargetResult, Trap,
};
use crate::scenario::{Load, Point, Scenario, Settings, Shape};
use crate::targets::Certificate;

/// Where progress is told.
pub(super) type Say<'a> = &'a dyn Fn(&str);

/// What all runs of one command share.
pub(super) struct Lab<'a> {
    pub(super) bench: PathBuf,
    pub(super) folder: PathBuf,
    pub(super) certificate: Certificate,
    pub(super) cpus: Vec<usize>,
    pub(super) facts: Facts,
    pub(super) scale: Scale,
    pub(super) seed: u64,
    pub(super) command: String,
    pub(super) upstream_port: Option<u16>,
    pub(super) rate: Option<f64>,
    pub(super) say: Say<'a>,
}

/// Payloads of the first report: bytes asked and answered.
const LINK_PAYLOAD: (usize, usize) = (81, 181);
const CEILING_SECONDS: f64 = 1.0;
/// A closed loop this long tells what a target can do.
const PROBE_SECONDS: f64 = 1.5;

/// What grows while the points of a scenario are run.
struct Progress {
    begun: Instant,
    dice: Dice,
    position: usize,
    rounds_all: usize,
    cases: Vec<Case>,
    targets: Vec<Target>,
}

/// Gateways of one shape, by place in the list of entrants.
type Started = BTreeMap<usize, Gateway>;

impl Lab<'_> {
    /// Runs a scenario on these entrants.
    pub(super) fn run(&self, scenario: &Scenario, entrants: &[Entrant], skipped: &[Skipped]) -> Result<Run> {
        let started = httpdate_now();
        let begun = Instant::now();
        let points = scenario.points(pinning::workers_max(self.cpus.len()))?;
        let mut run = self.empty_run(scenario, &points, skipped, started);
        let mut progress = Progress {
            begun,
            dice: Dice::new(self.seed),
            position: 0,
            rounds_all: points.len() * entrants.len() * scenario.rounds,
            cases: points.iter().map(|point| empty_case(point, entrants)).collect(),
            targets: entrants.iter().map(Entrant::target).collect(),
        };
        run.ceilings = self.ceilings(&points).context("the ceilings")?;
        for ceiling in &run.ceilings {
            (self.say)(&format!(
                "ceiling of the {}: {:.0} round trips per second on {} connections",
                ceiling.name, ceiling.per_second, ceiling.connections
            ));
        }
        for group in groups(&points) {
            self.group(scenario, &points, &group, entrants, &mut progress)?;
        }
        run.cases = progress.cases;
        run.targets = progress.targets;
        run.took_ms = begun.elapsed().as_millis() as u64;
        for (trap, named) in run.scenario.traps.clone().iter().zip(&scenario.traps) {
            let seen = named.see.and_then(|sight| sights::seen(sight, &run));
            if let Some(known) = run.scenario.traps.iter_mut().find(|known| known.name == trap.name) {
                known.seen = seen;
            }
        }
        Ok(run)
    }

    fn empty_run(&self, scenario: &Scenario, points: &[Point], skipped: &[Skipped], started: String) -> Run {
        let connections = points.iter().map(|point| point.settings.connections as u64).max().unwrap_or(1);
        let short = points.iter().any(|point| {
            let close = |header: &String| header.to_ascii_lowercase().starts_with("connection:");
            point.settings.new_connection || point.settings.headers.iter().any(close)
        });
        let workers = points.iter().map(|point| point.settings.workers).max().unwrap_or(1);
        let traps = scenario.traps.iter().map(|trap| Trap {
            name: trap.name.clone(),
            what: trap.what.clone(),
            answer: trap.answer.clone(),
            seen: None,
        });
        Run {
            format: FORMAT,
            started,
            took_ms: 0,
            command: self.command.clone(),
            seed: self.seed,
            scale: self.scale,
            lab_version: env!("CARGO_PKG_VERSION").to_owned(),
            machine: self.facts.machine(pinning::split(&self.cpus, workers)),
            doctor: doctor::judge(&self.facts, doctor::Needs { connections, short_connections: short }),
            scenario: ScenarioFacts {
                name: scenario.name.clone(),
                title: scenario.title.clone(),
                report: scenario.report.clone(),
                about: scenario.about.clone(),
                traps: traps.collect(),
                views: scenario.views.clone(),
                seconds: scenario.seconds,
                rounds: scenario.rounds,
                source: scenario.source.clone(),
            },
            ceilings: Vec::new(),
            targets: Vec::new(),
            skipped: skipped.to_vec(),
            cases: Vec::new(),
        }
    }

    /// The link with the first report's payloads, and the upstream alone on as many connections as the busiest
    /// point in a closed loop has.
    fn ceilings(&self, points: &[Point]) -> Result<Vec<Ceiling>> {
        let pinning = pinning::split(&self.cpus, 1);
        let (asked, answered) = LINK_PAYLOAD;
        let duration = Duration::from_secs_f64(CEILING_SECONDS);
        let link = ceilings::link(16, asked, answered, duration, &pinning)?;
        let Some(point) = points
            .iter()
            .filter(|point| point.settings.has_upstream())
            .max_by_key(|point| point.settings.connections)
        else {
            return Ok(vec![link]);
        };
        let connections = point.settings.connections.min(256);
        let settings = Settings {
            load: Load::Closed,
            connections,
            path: point.settings.path.clone(),
            ..Settings::default()
        };
        let mut upstreams = self.upstreams(1, &pinning)?;
        let round = self.direct(&settings, CEILING_SECONDS, &mut upstreams, &pinning, Instant::now())?;
        let summary = &round.summary;
        let responses = summary.responses.max(1);
        let alone = Ceiling {
            name: "upstream".to_owned(),
            connections,
            request_bytes: summary.bytes_sent / responses,
            response_bytes: summary.bytes_received / responses,
            per_second: summary.responses_per_second(),
            p50_ns: percentile(summary, 50.0),
        };
        Ok(vec![link, alone])
    }

    fn upstreams(&self, count: usize, pinning: &Pinning) -> Result<Upstreams> {
        Upstreams::start(&self.bench, &self.folder, &pinning.upstream, count, self.upstream_port)
    }

    fn direct(
        &self,
        settings: &Settings,
        seconds: f64,
        upstreams: &mut Upstreams,
        pinning: &Pinning,
        run_begun: Instant,
    ) -> Result<Round> {
        let base = format!("http://127.0.0.1:{}", upstreams.port());
        let subject = Subject {
            base: &base,
            server_name: None,
            gateway: None,
            pids: Vec::new(),
            is_gateway: false,
            own_upstream: true,
        };
        let bench = Bench { program: &self.bench, folder: &self.folder, pinning, run_begun };
        round::run(settings, seconds, &subject, upstreams, &bench)
    }

    /// Points that share a shape: gateways are started once, loaded in turn, and stopped.
    fn group(
        &self,
        scenario: &Scenario,
        points: &[Point],
        group: &[usize],
        entrants: &[Entrant],
        progress: &mut Progress,
    ) -> Result<()> {
        let Some(first) = group.first() else { return Ok(()) };
        let shape = points[*first].settings.shape();
        let pinning = pinning::split(&self.cpus, shape.workers);
        let mut upstreams = self.upstreams(shape.endpoints, &pinning)?;
        let connections_max =
            group.iter().map(|point| points[*point].settings.connections).max().unwrap_or(1);
        let gateways = self.start_all(
            &shape,
            connections_max,
            entrants,
            group,
            points,
            &mut upstreams,
            &pinning,
            progress,
        )?;
        let mut settings: BTreeMap<usize, Settings> =
            group.iter().map(|point| (*point, points[*point].settings.clone())).collect();
        for (point, settings) in &mut settings {
            self.settle_rate(settings, &gateways, entrants, &mut upstreams, &pinning, progress)?;
            if let Some(rate) = settings.rate {
                progress.cases[*point].parameters.insert("rate".to_owned(), rate.into());
            }
        }
        let mut turns: Vec<(usize, usize)> = Vec::new();
        for (point, settings) in &settings {
            let takes_part = |place: &usize| {
                can_run(&entrants[*place], settings, points, *point, gateways.contains_key(place))
            };
            turns.extend((0..entrants.len()).filter(takes_part).map(|place| (*point, place)));
        }
        for number in 0..=scenario.rounds {
            progress.dice.shuffle(&mut turns);
            for (point, place) in &turns {
                interrupt::check()?;
                let seconds = if number == 0 { scenario.warmup_seconds } else { scenario.seconds };
                // what is not measured neither needs steps of a ramp nor held connections
                if number == 0 && (seconds == 0.0 || matches!(settings[point].load, Load::Ramp | Load::Idle))
                {
                    continue;
                }
                let outcome = self.turn(
                    &settings[point],
                    seconds,
                    number,
                    &entrants[*place],
                    gateways.get(place),
                    &mut upstreams,
                    &pinning,
                    progress.begun,
                );
                progress.note(*point, *place, number, outcome, self.say);
            }
        }
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "one caller; a struct would only rename them")]
    fn turn(
        &self,
        settings: &Settings,
        seconds: f64,
        number: usize,
        entrant: &Entrant,
        gateway: Option<&Gateway>,
        upstreams: &mut Upstreams,
        pinning: &Pinning,
        begun: Instant,
    ) -> Result<Round> {
        let scheme = if settings.tls { "https" } else { "http" };
        // the warm-up is the load without the changes
        let settings =
            Settings { changes: settings.changes.clone().filter(|_| number > 0), ..settings.clone() };
        let (base, pids, own_upstream) = match (&entrant.kind, gateway) {
            (Kind::Direct, _) => return self.direct(&settings, seconds, upstreams, pinning, begun),
            (Kind::Url { url, pids }, _) => (url.clone(), pids.clone(), false),
            (Kind::Adapter { .. }, Some(gateway)) => {
                let port = if settings.tls { gateway.ports.https } else { gateway.ports.http };
                (format!("{scheme}://127.0.0.1:{port}"), vec![gateway.root()], true)
            }
            (Kind::Adapter { .. }, None) => anyhow::bail!("{} was not started", entrant.name),
        };
        let server_name = (settings.tls && gateway.is_some()).then_some("localhost");
        let subject = Subject { base: &base, server_name, gateway, pids, is_gateway: true, own_upstream };
        let bench = Bench { program: &self.bench, folder: &self.folder, pinning, run_begun: begun };
        round::run(&settings, seconds, &subject, upstreams, &bench)
    }

    #[expect(clippy::too_many_arguments, reason = "one caller; a struct would only rename them")]
    fn start_all(
        &self,
        shape: &Shape,
        connections_max: usize,
        entrants: &[Entrant],
        group: &[usize],
        points: &[Point],
        upstreams: &mut Upstreams,
        pinning: &Pinning,
        progress: &mut Progress,
    ) -> Result<Started> {
        let path = points[group[0]].settings.paths()[0].clone();
        let expected = upstreams.body(&path)?;
        let mut started = Started::new();
        for (place, entrant) in entrants.iter().enumerate() {
            interrupt::check()?;
            let Kind::Adapter { adapter, program, .. } = &entrant.kind else { continue };
            let site = Site {
                folder: self.folder.join(format!("{}-{}-{}", entrant.name, group[0], progress.position)),
                program: program.as_path(),
                cpus: &pinning.gateway,
                endpoints: upstreams.addresses(shape.endpoints),
                certificate: &self.certificate,
                connections_max,
            };
            let gateway = Gateway::start(*adapter, shape, site).and_then(|outcome| match outcome {
                Ok(gateway) => gateway.verify(&path, &expected).map(|()| Ok(gateway)),
                Err(reason) => Ok(Err(reason)),
            });
            let missing = match gateway {
                Ok(Ok(gateway)) => {
                    progress.describe(place, &gateway);
                    started.insert(place, gateway);
                    continue;
                }
                Ok(Err(reason)) => reason,
                Err(error) => format!("{error:#}"),
            };
            (self.say)(&format!("{} is left out of {}: {missing}", entrant.name, points[group[0]].label));
            group.iter().for_each(|point| progress.miss(*point, place, &missing));
        }
        Ok(started)
    }

    /// A share of what the slowest can do becomes a rate.
    fn settle_rate(
        &self,
        settings: &mut Settings,
        gateways: &Started,
        entrants: &[Entrant],
        upstreams: &mut Upstreams,
        pinning: &Pinning,
        progress: &mut Progress,
    ) -> Result<()> {
        let Some(share) = settings.rate_share.filter(|_| settings.load == Load::Open) else { return Ok(()) };
        if let Some(rate) = self.rate {
            settings.rate = Some(rate);
            return Ok(());
        }
        let known = progress.cases.iter().find_map(|case| case.parameters.get("rate")?.as_f64());
        if known.is_some() {
            // one rate for all points, or they could not be compared
            settings.rate = known;
            return Ok(());
        }
        let probe = Settings { load: Load::Closed, changes: None, ..settings.clone() };
        let mut slowest: Option<(f64, &str)> = None;
        for (place, gateway) in gateways {
            let entrant = &entrants[*place];
            let round = self.turn(
                &probe,
                PROBE_SECONDS,
                0,
                entrant,
                Some(gateway),
                upstreams,
                pinning,
                progress.begun,
            )?;
            let rate = round.summary.responses_per_second();
            if slowest.is_none_or(|(known, _)| rate < known) {
                slowest = Some((rate, &entrant.name));
            }
        }
        let Some((capacity, name)) = slowest else { return Ok(()) };
        let rate = round_down(capacity * share);
        (self.say)(&format!("the slowest, {name}, answers {capacity:.0} per second: the rate is {rate:.0}"));
        settings.rate = Some(rate);
        Ok(())
    }
}

impl Progress {
    fn note(&mut self, point: usize, place: usize, number: usize, outcome: Result<Round>, say: Say<'_>) {
        let name = self.targets[place].name.clone();
        let label = self.cases[point].label.clone();
        if number == 0 {
            if let Err(error) = outcome {
                say(&format!("{label}, {name}, warm-up: {error:#}"));
            }
            return;
        }
        self.position += 1;
        let position = self.position;
        match outcome {
            Ok(round) => {
                say(&format!("[{position}/{}] {label}, {name}: {}", self.rounds_all, line(&round)));
                self.cases[point].results[place].rounds.push(Round { number, position, ..round });
            }
            Err(error) => {
                say(&format!("[{position}/{}] {label}, {name}: {error:#}", self.rounds_all));
                self.miss(point, place, &format!("round {number}: {error:#}"));
            }
        }
    }

    fn miss(&mut self, point: usize, place: usize, reason: &str) {
        self.cases[point].results[place].missing.get_or_insert_with(|| reason.to_owned());
    }

    /// The first start stands for all: later shapes differ by the parameters of their cases.
    fn describe(&mut self, place: usize, gateway: &Gateway) {
        let target = &mut self.targets[place];
        for note in &gateway.rendered.notes {
            if !target.notes.contains(note) {
                target.notes.push(note.clone());
            }
        }
        if target.command.is_empty() {
            target.command.clone_from(&gateway.command);
            target.configuration =
                gateway.rendered.files.iter().map(|(name, text)| (name.clone(), shown(text))).collect();
        }
    }
}

/// Long files are cut, keys and certificates left out.
fn shown(text: &str) -> String {
    const LINES_MAX: usize = 400;
    let secret = |line: &&str| line.contains("PRIVATE KEY") || line.contains("BEGIN CERTIFICATE");
    let mut lines: Vec<&str> = text
        .lines()
        .map(|line| if secret(&line) { "(certificate and key left out)" } else { line })
        .collect();
    if lines.len() > LINES_MAX {
        lines.truncate(LINES_MAX);
        lines.push("(cut)");
    }
    lines.join("\n") + "\n"
}

fn empty_case(point: &Point, entrants: &[Entrant]) -> Case {
    let result =
        |entrant: &Entrant| TargetResult { target: entrant.name.clone(), rounds: Vec::new(), missing: None };
    Case {
        id: point.id.clone(),
        label: point.label.clone(),
        parameters: point.parameters.clone(),
        results: entrants.iter().map(result).collect(),
    }
}

/// Points with the same shape, in the order of their first.
fn groups(points: &[Point]) -> Vec<Vec<usize>> {
    let mut groups: Vec<(Shape, Vec<usize>)> = Vec::new();
    for (number, point) in points.iter().enumerate() {
        let shape = point.settings.shape();
        match groups.iter_mut().find(|(known, _)| *known == shape) {
            Some((_, group)) => group.push(number),
            None => groups.push((shape, vec![number])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// Whether an entrant has a part in a point. The upstream alone is measured once for points that agree in the load.
fn can_run(entrant: &Entrant, settings: &Settings, points: &[Point], point: usize, started: bool) -> bool {
    match &entrant.kind {
        Kind::Adapter { .. } => started,
        Kind::Direct => {
            let load = settings.load_only();
            let earlier = points[..point].iter().any(|known| known.settings.load_only() == load);
            settings.has_upstream() && !settings.tls && !earlier
        }
        Kind::Url { url, .. } => {
            let shape = settings.shape();
            let plain =
                !(shape.key_auth || shape.limit_count || shape.mock || shape.dynamic) && shape.routes == 0;
            plain && url.starts_with("https://") == settings.tls
        }
    }
}

/// Two digits: a rate a reader can repeat.
fn round_down(rate: f64) -> f64 {
    let unit = 10_f64.powf(rate.max(1.0).log10().floor() - 1.0).max(1.0);
    ((rate / unit).floor() * unit).max(1.0)
}

fn percentile(summary: &yumen_load::Summary, percentile: f64) -> u64 {
    let points = &summary.main_latency().percentiles;
    points.iter().find(|point| point.percentile >= percentile).map_or(0, |point| point.ns)
}

/// One round in a line of progress.
fn line(round: &Round) -> String {
    let summary = &round.summary;
    let cpu = round.usage.gateway.cpu_ns_per_request / 1000.0;
    let who = serde_json::to_value(round.bottleneck.who).ok();
    let who = who.as_ref().and_then(|who| who.as_str()).unwrap_or("unknown").to_owned();
    format!(
        "{:.0}/s, p50 {:.2} ms, p99 {:.2} ms, {} errors, gateway {cpu:.1} us a request, limited by {who}",
        summary.responses_per_second(),
        percentile(summary, 50.0) as f64 / 1e6,
        percentile(summary, 99.0) as f64 / 1e6,
        summary.errors.total(),
    )
}

/// The start as RFC 3339.
fn httpdate_now() -> String {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    rfc3339(since.as_secs())
}

/// Seconds since 1970 as a date (days to civil, proleptic Gregorian).
fn rfc3339(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

/// Whether this entrant is the upstream alone.
pub(super) fn direct_entrant() -> Entrant {
    Entrant { name: DIRECT.to_owned(), kind: Kind::Direct }
}

/// A folder of its own for what a run writes.
pub(super) fn work_folder(base: &Path) -> Result<PathBuf> {
    let folder = base.join(format!("yumen-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).with_context(|| format!("{}", folder.display()))?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, date) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_795_273_199, "2026-11-21T15:39:59Z"),
        ] {
            assert_eq!(rfc3339(seconds), date);
        }
    }

    #[test]
    fn rates_are_rounded_down_to_two_digits() {
        for (rate, rounded) in [(12_345.0, 12_000.0), (999.0, 990.0), (54.3, 54.0), (7.9, 7.0), (0.2, 1.0)] {
            assert_eq!(round_down(rate), rounded);
        }
    }

    #[test]
    fn points_of_one_shape_are_one_group() {
        let point = |connections: usize, routes: usize| Point {
            id: String::new(),
            label: String::new(),
            parameters: Default::default(),
            settings: Settings { connections, routes, ..Settings::default() },
        };
        assert_eq!(groups(&[point(1, 0), point(1, 5), point(2, 0)]), [vec![0, 2], vec![1]]);
    }

    #[test]
    fn secrets_are_not_shown() {
        let text = shown("listen 1\n\"-----BEGIN PRIVATE KEY-----abc\"\n");
        assert_eq!(text, "listen 1\n(certificate and key left out)\n");
    }
}
