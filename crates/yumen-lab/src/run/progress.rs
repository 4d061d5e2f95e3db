//! The growing part of a record: cases with rounds, targets with rendered files, and progress lines.

use std::time::Instant;

use anyhow::Result;
use yumen_load::LoadSummary;

use super::gateway::StartedGateway;
use super::lab::Say;
use super::order::ShuffleRandom;
use super::run_targets::RunTarget;
use crate::record::{FlameProfile, MeasuredTarget, RoundRecord, RunCase, TargetResult};
use crate::scenario::ParameterPoint;

/// The growing part of a record.
pub(super) struct RunProgress {
    pub(super) begun: Instant,
    pub(super) dice: ShuffleRandom,
    pub(super) cases: Vec<RunCase>,
    pub(super) targets: Vec<MeasuredTarget>,
    pub(super) flames: Vec<FlameProfile>,
    position: usize,
    /// Total number of rounds: exact for started groups, estimated for others.
    rounds_all: usize,
    pairs_guessed: usize,
}

impl RunProgress {
    pub(super) fn new(
        points: &[ParameterPoint],
        entrants: &[RunTarget],
        rounds: usize,
        seed: u64,
    ) -> RunProgress {
        let pairs = points.len() * entrants.len();
        RunProgress {
            begun: Instant::now(),
            dice: ShuffleRandom::new(seed),
            cases: points.iter().map(|point| empty_case(point, entrants)).collect(),
            targets: entrants.iter().map(RunTarget::target).collect(),
            flames: Vec::new(),
            position: 0,
            // An estimate: which targets can be started shows only later.
            rounds_all: pairs * rounds,
            pairs_guessed: pairs,
        }
    }

    /// Replaces the estimate for a started group by its exact number of rounds.
    pub(super) fn planned(&mut self, turns: &[(usize, usize)], rounds: usize) {
        let mut points: Vec<usize> = turns.iter().map(|(point, _)| *point).collect();
        points.dedup();
        let guessed = (points.len() * self.targets.len()).min(self.pairs_guessed);
        self.pairs_guessed -= guessed;
        self.rounds_all = self.position + (turns.len() + self.pairs_guessed) * rounds;
    }

    /// Rate settled for an earlier point.
    pub(super) fn rate(&self) -> Option<f64> {
        self.cases.iter().find_map(|case| case.parameters.get("rate")?.as_f64())
    }

    /// Adds a round, or the reason why it is missing; number 0 is the warm-up.
    pub(super) fn note(
        &mut self,
        point: usize,
        target_index: usize,
        number: usize,
        outcome: Result<RoundRecord>,
        print: Say<'_>,
    ) {
        let label = format!("{}, {}", self.cases[point].label, self.targets[target_index].name);
        if number == 0 {
            if let Err(error) = outcome {
                print(&format!("{label}, warm-up: {error:#}"));
            }
            return;
        }
        self.position += 1;
        let position = self.position;
        match outcome {
            Ok(round) => {
                print(&format!("[{position}/{}] {label}: {}", self.rounds_all, line(&round)));
                self.cases[point].results[target_index].rounds.push(RoundRecord {
                    number,
                    position,
                    ..round
                });
            }
            Err(error) => {
                print(&format!("[{position}/{}] {label}: {error:#}", self.rounds_all));
                self.miss(point, target_index, &format!("round {number}: {error:#}"));
            }
        }
    }

    /// Notes why a target lacks rounds; the first reason is retained.
    pub(super) fn miss(&mut self, point: usize, target_index: usize, reason: &str) {
        self.cases[point].results[target_index].missing.get_or_insert_with(|| reason.to_owned());
    }

    /// Records the rendered files of the first start. Later starts differ by the parameters of their cases.
    pub(super) fn describe(&mut self, target_index: usize, gateway: &StartedGateway) {
        let target = &mut self.targets[target_index];
        for note in &gateway.rendered.notes {
            if !target.notes.contains(note) {
                target.notes.push(note.clone());
            }
        }
        if target.command.is_empty() {
            target.command.clone_from(&gateway.command);
            let files = gateway.rendered.files.iter();
            target.configuration = files.map(|(name, text)| (name.clone(), shown(text))).collect();
        }
    }
}

/// Truncates long files and omits keys and certificates.
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

fn empty_case(point: &ParameterPoint, entrants: &[RunTarget]) -> RunCase {
    let result = |entrant: &RunTarget| TargetResult {
        target: entrant.name.clone(),
        rounds: Vec::new(),
        missing: None,
    };
    RunCase {
        id: point.id.clone(),
        label: point.label.clone(),
        parameters: point.parameters.clone(),
        results: entrants.iter().map(result).collect(),
    }
}

/// One percentile of the primary latency.
pub(super) fn percentile(summary: &LoadSummary, percentile: f64) -> u64 {
    let points = &summary.main_latency().percentiles;
    // Percentiles are floats, so the next listed one is taken.
    points.iter().find(|point| point.percentile >= percentile).map_or(0, |point| point.ns)
}

/// Summary of a round in one line.
fn line(round: &RoundRecord) -> String {
    let summary = &round.summary;
    let label = format!("{:?}", round.bottleneck.who).to_lowercase();
    if let Some(idle) = &summary.idle {
        let each = idle.rss_per_connection_bytes.unwrap_or(0.0) / 1024.0;
        return format!("{} of {} connections held, {each:.1} KiB each", idle.held, idle.wanted);
    }
    format!(
        "{:.0}/s, p50 {:.2} ms, p99 {:.2} ms, {} errors, gateway {:.1} us a request, limited by {label}",
        summary.responses_per_second(),
        percentile(summary, 50.0) as f64 / 1e6,
        percentile(summary, 99.0) as f64 / 1e6,
        summary.errors.total(),
        round.usage.gateway.cpu_ns_per_request / 1000.0,
    )
}

/// Formats seconds since the Unix epoch as RFC 3339, UTC.
pub(super) fn rfc3339(seconds: u64) -> String {
    const DAY: u64 = 86_400;
    let (mut days, rest) = (seconds / DAY, seconds % DAY);
    let is_leap_year =
        |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap_year(year)) {
        days -= 365 + u64::from(is_leap_year(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap_year(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, date) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_798_761_599, "2026-12-31T23:59:59Z"),
        ] {
            assert_eq!(rfc3339(seconds), date);
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        let text = shown("listen 1\n\"-----BEGIN PRIVATE KEY-----abc\"\n");
        assert_eq!(text, "listen 1\n(certificate and key left out)\n");
    }
}
