//! `yumen-bench upstream`: the server behind the gateways.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use yumen_load::{LatencyShape, StallSchedule, UpstreamBehaviour, UpstreamCertificate, UpstreamOptions};

use crate::units::{parse_count, parse_duration_ms, parse_duration_ns, parse_whole};

/// Arguments of `upstream`.
#[derive(Debug, Args)]
pub struct UpstreamArgs {
    /// Address of HTTP/1.1 and HTTP/2 with prior knowledge; port 0 selects a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9000")]
    pub listen: SocketAddr,
    /// Address of both protocols over TLS
    #[arg(long, value_name = "ADDRESS")]
    pub listen_tls: Option<SocketAddr>,
    /// Key type of the self-signed certificate
    #[arg(long, default_value = "rsa")]
    pub key_type: CertificateKeyType,
    /// Certificate chain (PEM), instead of a self-signed certificate
    #[arg(long, value_name = "FILE", requires = "key")]
    pub cert: Option<PathBuf>,
    /// Private key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub key: Option<PathBuf>,
    /// Number of threads
    #[arg(short, long, default_value_t = 1)]
    pub threads: usize,
    /// Body size for paths without a size: 200, 10k
    #[arg(long, default_value = "2", value_parser = parse_whole)]
    pub size: u64,
    /// Latency of each response: 2ms, or 1ms-5ms for a uniform distribution
    #[arg(long, value_name = "DURATION")]
    pub latency: Option<String>,
    /// Stalls without responses: FOR after FIRST, repeated every EVERY: 5s+200ms, or 5s+200ms/10s
    #[arg(long, value_name = "FIRST+FOR/EVERY")]
    pub stall: Option<String>,
    /// Share of error responses: 0.01
    #[arg(long, default_value_t = 0.0)]
    pub error_share: f64,
    /// Status of the error responses
    #[arg(long, default_value_t = 500)]
    pub error_status: u16,
    /// Requests per second; excess requests are answered with 429
    #[arg(long, value_parser = parse_count)]
    pub rate_limit: Option<f64>,
}

/// Key type of a certificate.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum CertificateKeyType {
    /// RSA of 2048 bits.
    Rsa,
    /// ECDSA on P-256.
    Ecdsa,
}

/// Serves until the process ends.
pub fn run(args: &UpstreamArgs) -> Result<ExitCode> {
    let options = options(args)?;
    let upstream = yumen_load::upstream(&options).with_context(|| format!("listening on {}", args.listen))?;
    let mut words = format!("listening on {}", upstream.address());
    if let Some(address) = upstream.address_tls() {
        words.push_str(&format!(", TLS on {address}"));
    }
    // The parent process reads the addresses from this line.
    writeln!(std::io::stdout(), "{words}").context("writing to the standard output")?;
    upstream.join()?;
    Ok(ExitCode::SUCCESS)
}

fn options(args: &UpstreamArgs) -> Result<UpstreamOptions> {
    if !(0.0..=1.0).contains(&args.error_share) {
        bail!("--error-share {}: a share is from 0 to 1", args.error_share);
    }
    if !(400..=599).contains(&args.error_status) {
        bail!("--error-status {}: an error is from 400 to 599", args.error_status);
    }
    if args.rate_limit.is_some_and(|limit| limit <= 0.0) {
        bail!("--rate-limit: the rate must be above 0");
    }
    let certificate = match (&args.cert, &args.key, args.key_type) {
        (Some(chain), Some(key), _) => UpstreamCertificate::Files(
            chain.to_string_lossy().into_owned(),
            key.to_string_lossy().into_owned(),
        ),
        (_, _, CertificateKeyType::Rsa) => UpstreamCertificate::Rsa,
        (_, _, CertificateKeyType::Ecdsa) => UpstreamCertificate::Ecdsa,
    };
    Ok(UpstreamOptions {
        listen: args.listen,
        listen_tls: args.listen_tls,
        certificate,
        threads: args.threads,
        body_bytes: args.size,
        behaviour: UpstreamBehaviour {
            latency: args.latency.as_deref().map_or(Ok(LatencyShape::None), latency)?,
            stalls: args.stall.as_deref().map(stalls).transpose()?,
            error_share: args.error_share,
            error_status: args.error_status,
            rate_limit: args.rate_limit,
        },
    })
}

fn latency(text: &str) -> Result<LatencyShape> {
    let read = |part: &str| {
        parse_duration_ns(part).map_err(|why| anyhow::anyhow!("--latency {text}: {part}: {why}"))
    };
    match text.split_once('-') {
        None => Ok(LatencyShape::Fixed(read(text)?)),
        Some((low, high)) => match (read(low)?, read(high)?) {
            (low, high) if low <= high => Ok(LatencyShape::Uniform(low, high)),
            _ => bail!("--latency {text}: the first is the shorter one"),
        },
    }
}

fn stalls(text: &str) -> Result<StallSchedule> {
    let read =
        |part: &str| parse_duration_ms(part).map_err(|why| anyhow::anyhow!("--stall {text}: {part}: {why}"));
    let (single, every) = text.split_once('/').map_or((text, None), |(single, every)| (single, Some(every)));
    let (first, length) =
        single.split_once('+').with_context(|| format!("--stall {text}: FIRST+FOR is expected"))?;
    let stalls =
        StallSchedule { first_ms: read(first)?, for_ms: read(length)?, every_ms: every.map_or(Ok(0), read)? };
    if every.is_some() && stalls.every_ms <= stalls.for_ms {
        bail!("--stall {text}: stalls that follow each other at once never end");
    }
    Ok(stalls)
}

#[cfg(test)]
mod tests;
