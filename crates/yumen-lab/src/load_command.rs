//! `yumen-bench load`: builds the plan from options, runs the load and prints the result.

use std::fs;
use std::io::{IsTerminal, Write};
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use yumen_load::{
    LoadLimits, LoadPlan, LoadProgress, LoadProtocol, LoadShape, LoadSummary, LoadTlsVersion, RequestPlan,
    StatusRange, TlsPlan, WeightedUrl,
};

use crate::threshold::FigureThreshold;
use crate::units::{duration, grouped, parse_count, parse_duration_ms, parse_whole};
use crate::{load_table, load_tsv};

/// Arguments of `load`.
#[derive(Debug, Args)]
pub struct LoadArgs {
    /// URLs.
    #[command(flatten)]
    pub targets: TargetUrlArgs,
    /// Shape and size of the load.
    #[command(flatten)]
    pub load: LoadRateArgs,
    /// Options of a rate ramp.
    #[command(flatten)]
    pub ramp: RateRampArgs,
    /// Options of idle connections.
    #[command(flatten)]
    pub idle: IdleConnectionArgs,
    /// The requests.
    #[command(flatten)]
    pub request: RequestArgs,
    /// HTTP version and TLS.
    #[command(flatten)]
    pub protocol: LoadProtocolArgs,
    /// Output of the result.
    #[command(flatten)]
    pub output: LoadOutputArgs,
}

/// URLs.
#[derive(Debug, Args)]
pub struct TargetUrlArgs {
    /// Target of requests: `URL`, or `WEIGHT@URL` for several in proportion
    #[arg(required_unless_present = "urls_file")]
    pub urls: Vec<String>,
    /// File with further targets, one per line; lines that begin with # are ignored
    #[arg(long, value_name = "FILE")]
    pub urls_file: Option<PathBuf>,
}

/// Shape and size of the load.
#[derive(Debug, Args)]
pub struct LoadRateArgs {
    /// Concurrent connections
    #[arg(short, long, default_value = "10", value_parser = parse_whole, help_heading = "Load")]
    pub connections: u64,
    /// Number of threads
    #[arg(short, long, default_value_t = 1, help_heading = "Load")]
    pub threads: usize,
    /// Duration: 10s, 500ms, 2m; 10s if no count is given
    #[arg(short, long, value_parser = parse_duration_ms, help_heading = "Load")]
    pub duration: Option<u64>,
    /// Number of requests
    #[arg(short = 'n', long, value_parser = parse_whole, help_heading = "Load")]
    pub count: Option<u64>,
    /// Open loop: requests per second over all connections, independent of responses
    #[arg(short = 'R', long, value_parser = parse_count, help_heading = "Load")]
    pub rate: Option<f64>,
    /// Warm-up, which is not counted
    #[arg(long, default_value = "0s", value_parser = parse_duration_ms, help_heading = "Load")]
    pub warmup: u64,
    /// Use a new connection for every request; adds no header field
    #[arg(long, help_heading = "Load")]
    pub new_connection: bool,
}

/// Options of a rate ramp.
#[derive(Debug, Args)]
pub struct RateRampArgs {
    /// Rate ramp: new connections per second from LOW to HIGH in steps of STEP
    #[arg(long, value_name = "LOW:HIGH:STEP", conflicts_with_all = ["rate", "count", "duration", "idle"],
          help_heading = "Rate ramp")]
    pub ramp: Option<String>,
    /// Requests per connection, one after another
    #[arg(long, default_value_t = 10, help_heading = "Rate ramp")]
    pub calls: u32,
    /// Connections per step
    #[arg(long, default_value = "5000", value_parser = parse_whole, help_heading = "Rate ramp")]
    pub connections_per_step: u64,
    /// Write the steps as tab-separated values; - is the standard output
    #[arg(long, value_name = "FILE", requires = "ramp", help_heading = "Rate ramp")]
    pub tsv: Option<PathBuf>,
}

/// Options of idle connections.
#[derive(Debug, Args)]
pub struct IdleConnectionArgs {
    /// Open all connections and hold them for this time
    #[arg(long, value_name = "DURATION", value_parser = parse_duration_ms,
          conflicts_with_all = ["rate", "count", "duration"], help_heading = "Idle connections")]
    pub idle: Option<u64>,
    /// Requests per connection before the hold
    #[arg(long, default_value_t = 1, help_heading = "Idle connections")]
    pub requests_first: u32,
    /// Process whose memory is measured, with its descendants; repeatable
    #[arg(long, help_heading = "Idle connections")]
    pub pid: Vec<u32>,
    /// Source address of connections, several are used in turn; FIRST-LAST is a range
    #[arg(long, value_name = "ADDRESS", help_heading = "Idle connections")]
    pub source: Vec<String>,
}

/// The requests.
#[derive(Debug, Args)]
pub struct RequestArgs {
    /// Request method
    #[arg(short = 'X', long, default_value = "GET", help_heading = "Request")]
    pub method: String,
    /// Header field, sent unchanged over HTTP/1.1: 'Name: value'
    #[arg(short = 'H', long = "header", value_name = "FIELD", help_heading = "Request")]
    pub headers: Vec<String>,
    /// Request body
    #[arg(short, long, conflicts_with = "body_file", help_heading = "Request")]
    pub body: Option<String>,
    /// File with the request body
    #[arg(long, value_name = "FILE", help_heading = "Request")]
    pub body_file: Option<PathBuf>,
    /// Statuses that are not errors
    #[arg(long, value_name = "FIRST-LAST", default_value = "200-399", help_heading = "Request")]
    pub good_statuses: String,
    /// Response timeout
    #[arg(long, default_value = "5s", value_parser = parse_duration_ms, help_heading = "Request")]
    pub timeout: u64,
    /// Connection timeout
    #[arg(long, default_value = "5s", value_parser = parse_duration_ms, help_heading = "Request")]
    pub connect_timeout: u64,
}

/// HTTP version and TLS.
#[derive(Debug, Args)]
pub struct LoadProtocolArgs {
    /// Use HTTP/2: by ALPN for https, with prior knowledge for http
    #[arg(long, help_heading = "Protocol")]
    pub http2: bool,
    /// HTTP/2: requests in flight per connection
    #[arg(short = 'm', long, default_value_t = 1, requires = "http2", help_heading = "Protocol")]
    pub streams: usize,
    /// The only TLS version to offer
    #[arg(long, help_heading = "Protocol")]
    pub tls_version: Option<TlsChoice>,
    /// Disable TLS session resumption: every connection makes a full handshake
    #[arg(long, help_heading = "Protocol")]
    pub no_resumption: bool,
    /// Server name (SNI) of the TLS handshake, if not the host of the URL
    #[arg(long, value_name = "NAME", help_heading = "Protocol")]
    pub server_name: Option<String>,
    /// Trust anchors (PEM) for certificate verification; without this option, nothing is verified
    #[arg(long, value_name = "FILE", help_heading = "Protocol")]
    pub ca: Option<PathBuf>,
}

/// Output of the result.
#[derive(Debug, Args)]
pub struct LoadOutputArgs {
    /// Write the whole result as JSON; - is the standard output, instead of the table
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub json: Option<PathBuf>,
    /// Threshold that makes the command fail with exit code 1, such as 'p99>5ms' or 'errors>0.1%'; repeatable
    #[arg(long, value_name = "THRESHOLD", value_parser = clap::value_parser!(FigureThreshold), help_heading = "Output")]
    pub fail_if: Vec<FigureThreshold>,
    /// Show no progress
    #[arg(short, long, help_heading = "Output")]
    pub quiet: bool,
}

/// A TLS version on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum TlsChoice {
    /// TLS 1.2.
    #[value(name = "1.2")]
    V12,
    /// TLS 1.3.
    #[value(name = "1.3")]
    V13,
}

/// Runs the load and prints the result.
pub fn run(args: &LoadArgs) -> Result<ExitCode> {
    let plan = plan(args)?;
    if let Some(reason) = args.output.fail_if.iter().find_map(FigureThreshold::unfit_for_load) {
        bail!(reason);
    }
    let shown = !args.output.quiet && std::io::stderr().is_terminal();
    let summary = yumen_load::run(&plan, |progress| {
        if shown {
            show_progress(progress);
        }
    })?;
    if shown {
        // Clears the progress line before the result.
        let _ = write!(std::io::stderr(), "\r\x1b[K");
    }
    let is_stdout = |file: &Option<PathBuf>| file.as_ref().is_some_and(|file| file.as_os_str() == "-");
    if let Some(file) = &args.output.json {
        write_to(file, &(serde_json::to_string_pretty(&summary)? + "\n"))?;
    }
    if let Some(file) = &args.ramp.tsv {
        write_to(file, &load_tsv::render(&summary))?;
    }
    if !is_stdout(&args.output.json) && !is_stdout(&args.ramp.tsv) {
        write_stdout(&load_table::render(&summary))?;
    }
    if summary.totals.responses == 0 && !matches!(summary.plan.kind, LoadShape::Idle { .. }) {
        // The result is printed nevertheless, but scripts must see a failure.
        let _ = writeln!(std::io::stderr(), "yumen-bench: no request was answered");
        return Ok(ExitCode::FAILURE);
    }
    let outcomes = args.output.fail_if.iter().map(|threshold| threshold.judge_load(&summary));
    let crossed: Vec<_> = outcomes.filter(|outcome| outcome.crossed).collect();
    for outcome in &crossed {
        let _ = writeln!(
            std::io::stderr(),
            "yumen-bench: threshold {} crossed: {}",
            outcome.threshold,
            outcome.found
        );
    }
    Ok(if crossed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Builds the plan from the options.
pub fn plan(args: &LoadArgs) -> Result<LoadPlan> {
    let kind = kind(args)?;
    let endless = matches!(kind, LoadShape::Closed | LoadShape::Open { .. });
    let body = match (&args.request.body, &args.request.body_file) {
        (Some(body), _) => body.clone().into_bytes(),
        (None, Some(file)) => fs::read(file).with_context(|| format!("--body-file {}", file.display()))?,
        (None, None) => Vec::new(),
    };
    Ok(LoadPlan {
        request: RequestPlan {
            urls: urls(args)?,
            method: args.request.method.clone(),
            headers: args.request.headers.iter().map(|field| header(field)).collect::<Result<_>>()?,
            body_bytes: body.len() as u64,
            body,
        },
        kind,
        connections: usize::try_from(args.load.connections).context("--connections")?,
        threads: args.load.threads,
        limits: LoadLimits {
            duration_ms: args.load.duration.or((endless && args.load.count.is_none()).then_some(10_000)),
            count: args.load.count,
            warmup_ms: args.load.warmup,
        },
        protocol: if args.protocol.http2 { LoadProtocol::Http2 } else { LoadProtocol::Http1 },
        streams: args.protocol.streams,
        new_connection: args.load.new_connection,
        tls: TlsPlan {
            version: args.protocol.tls_version.map(|version| match version {
                TlsChoice::V12 => LoadTlsVersion::V12,
                TlsChoice::V13 => LoadTlsVersion::V13,
            }),
            resumption: !args.protocol.no_resumption,
            server_name: args.protocol.server_name.clone(),
            ca_file: args.protocol.ca.as_ref().map(|file| file.to_string_lossy().into_owned()),
        },
        connect_timeout_ms: args.request.connect_timeout,
        response_timeout_ms: args.request.timeout,
        good_statuses: good_statuses(&args.request.good_statuses)?,
        sources: sources(&args.idle.source)?,
    })
}

fn kind(args: &LoadArgs) -> Result<LoadShape> {
    if let Some(ramp) = &args.ramp.ramp {
        let parts: Vec<f64> = ramp
            .split(':')
            .map(|part| parse_count(part).map_err(|why| anyhow::anyhow!("--ramp {ramp}: {why}")))
            .collect::<Result<_>>()?;
        let [low, high, step] = parts[..] else {
            bail!("--ramp {ramp}: three numbers are expected, such as 20:200:20");
        };
        let (calls, connections_per_step) = (args.ramp.calls, args.ramp.connections_per_step);
        return Ok(LoadShape::Ramp { low, high, step, calls, connections_per_step });
    }
    Ok(match (args.idle.idle, args.load.rate) {
        (Some(hold_ms), _) => {
            LoadShape::Idle { hold_ms, requests_first: args.idle.requests_first, pids: args.idle.pid.clone() }
        }
        (None, Some(rate)) => LoadShape::Open { rate },
        (None, None) => LoadShape::Closed,
    })
}

fn urls(args: &LoadArgs) -> Result<Vec<WeightedUrl>> {
    let mut urls: Vec<WeightedUrl> = args.targets.urls.iter().map(|text| weighted(text)).collect();
    if let Some(file) = &args.targets.urls_file {
        let text = fs::read_to_string(file).with_context(|| format!("--urls-file {}", file.display()))?;
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        urls.extend(lines.map(weighted));
    }
    Ok(urls)
}

/// Parses `WEIGHT@URL` or a URL alone with weight 1. A URL has no `@` before the end of its scheme.
fn weighted(text: &str) -> WeightedUrl {
    let split = text.split_once('@').and_then(|(weight, url)| Some((weight.parse().ok()?, url)));
    let (weight, url) = split.unwrap_or((1, text));
    WeightedUrl { url: url.to_owned(), weight }
}

fn header(field: &str) -> Result<(String, String)> {
    let (name, value) =
        field.split_once(':').with_context(|| format!("--header {field:?}: 'Name: value' is expected"))?;
    if name.is_empty() || field.contains(['\r', '\n']) {
        bail!("--header {field:?}: a name and no line ends are expected");
    }
    Ok((name.to_owned(), value.strip_prefix(' ').unwrap_or(value).to_owned()))
}

fn good_statuses(text: &str) -> Result<StatusRange> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) if first <= last => Ok(StatusRange { first, last }),
        _ => bail!("--good-statuses {text}: FIRST-LAST is expected, such as 200-399"),
    }
}

fn sources(given: &[String]) -> Result<Vec<IpAddr>> {
    let mut sources = Vec::new();
    for text in given {
        let address = |part: &str| {
            part.parse::<IpAddr>().map_err(|_| anyhow::anyhow!("--source {text}: {part} is not an address"))
        };
        let Some((first, last)) = text.split_once('-') else {
            sources.push(address(text)?);
            continue;
        };
        let (IpAddr::V4(first), IpAddr::V4(last)) = (address(first)?, address(last)?) else {
            bail!("--source {text}: a range is one of IPv4 addresses");
        };
        let (first, last) = (u32::from(first), u32::from(last));
        if last < first || last - first > 65_535 {
            bail!("--source {text}: a range rises and names at most 65 536 addresses");
        }
        sources.extend((first..=last).map(|address| IpAddr::V4(address.into())));
    }
    Ok(sources)
}

fn show_progress(progress: &LoadProgress) {
    let second = &progress.second;
    let mut line = format!(
        "{:>4} s  {:>9}/s  p99 {:>8}  errors {}",
        second.second + 1,
        grouped(second.responses),
        duration(second.p99_ns as f64),
        grouped(progress.errors)
    );
    if let Some((step, steps)) = progress.step {
        line = format!("step {step}/{steps}  {line}");
    }
    if let Some((open, requested)) = progress.idle {
        line = format!(
            "{:>4} s  {} of {} connections open",
            second.second + 1,
            grouped(open),
            grouped(requested)
        );
    }
    // A failed write to the terminal must not stop the run.
    let _ = write!(std::io::stderr(), "\r\x1b[K{line}");
}

fn write_to(file: &PathBuf, text: &str) -> Result<()> {
    if file.as_os_str() == "-" {
        return write_stdout(text);
    }
    fs::write(file, text).with_context(|| format!("writing {}", file.display()))
}

fn write_stdout(text: &str) -> Result<()> {
    std::io::stdout().write_all(text.as_bytes()).context("writing to the standard output")
}

/// Parses a result written by `--json`.
pub fn read_summary(text: &str) -> Result<LoadSummary> {
    let summary: LoadSummary = serde_json::from_str(text)?;
    if summary.format > yumen_load::FORMAT {
        bail!("the result has format {}; this program reads up to {}", summary.format, yumen_load::FORMAT);
    }
    Ok(summary)
}

#[cfg(test)]
mod tests;
