//! `yumen explain`: explains the routing of a request or stream, by a running gateway, a file or Kubernetes manifests.

mod listener_choice;

use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use clap::Args;
use hyper::Method;
use yumen_base::{Problem, ProblemLevel};
use yumen_config::{Kind, Resource};
use yumen_snapshot::{ExplainContext, ExplainResult, Question, Snapshot, explain_any};

use super::manifest_args::ManifestArgs;
use super::remote::RemoteArgs;
use super::revision_arg::RevisionArg;
use super::{offline, output};
use crate::diagnostics::{SourceText, has_colors, render};
use crate::kubernetes::PLACEHOLDER_ADDRESS;
use crate::node::NodeFile;

pub(crate) use listener_choice::choose as choose_listener;

/// Arguments of `yumen explain`.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// Request: a method [default: GET] and a URL or path; or a stream: tcp://ADDRESS:PORT,
    /// udp://ADDRESS:PORT or tls://NAME:PORT
    #[arg(num_args = 1..=2, required = true, value_name = "METHOD URL")]
    request: Vec<String>,
    /// Header field of the request; repeatable
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// Address of the client [default: 127.0.0.1]
    #[arg(long, value_name = "IP")]
    client_ip: Option<IpAddr>,
    /// Assume that the client is authenticated as this consumer
    #[arg(long, value_name = "NAME")]
    consumer: Option<String>,
    /// Server name of the TLS handshake [default: the host of an https or tls URL]
    #[arg(long, value_name = "NAME")]
    sni: Option<String>,
    /// Listener of the configuration (id) that accepts the request or stream [default: one of the node's settings]
    #[arg(long, value_name = "LISTENER")]
    listener: Option<String>,
    /// Explain why this route or stream route (id or name) does not match
    #[arg(long, value_name = "ROUTE")]
    why_not: Option<String>,
    /// Use these resources (APISIX standalone format) instead of a running gateway
    #[arg(long, value_name = "routes.yaml", conflicts_with_all = ["at", "kubernetes"])]
    file: Option<PathBuf>,
    #[command(flatten)]
    manifests: ManifestArgs,
    /// Use the configuration of this revision
    #[arg(long, value_name = "REVISION", conflicts_with = "kubernetes")]
    at: Option<RevisionArg>,
    #[command(flatten)]
    pub(crate) remote: RemoteArgs,
}

/// Explains a request and prints the explanation.
pub(crate) fn run(args: &ExplainArgs) -> anyhow::Result<ExitCode> {
    let question = question(args)?;
    let node = &args.remote.node;
    let explanation = match (&args.file, args.manifests.paths()) {
        (None, None) => None,
        (Some(file), _) => Some(explain_file(file, node, &question)?),
        (None, Some(paths)) => Some(explain_manifests(paths, node, question.clone())?),
    };
    let text = match explanation {
        None => ask_gateway(args, &question)?,
        Some(explanation) if args.remote.json => format!("{}\n", serde_json::to_string_pretty(&explanation)?),
        Some(explanation) => explanation.to_string(),
    };
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Builds the question from the arguments.
fn question(args: &ExplainArgs) -> anyhow::Result<Question> {
    let (method, url) = match args.request.as_slice() {
        [method, url] => (method.clone(), url.clone()),
        [url] => ("GET".to_owned(), url.clone()),
        _ => bail!("a request is a method and a URL"),
    };
    let mut question = Question {
        method,
        url,
        client_ip: args.client_ip,
        consumer: args.consumer.clone(),
        sni: args.sni.clone(),
        listener: args.listener.clone(),
        why_not: args.why_not.clone(),
        ..Question::default()
    };
    for header in &args.headers {
        let (name, value) = header
            .split_once(':')
            .with_context(|| format!("{header:?} is not a header field, NAME: VALUE"))?;
        let joint = if name.eq_ignore_ascii_case("cookie") { "; " } else { ", " };
        let values = question.headers.entry(name.trim().to_owned()).or_default();
        if !values.is_empty() {
            values.push_str(joint);
        }
        values.push_str(value.trim());
    }
    Ok(question)
}

/// Requests the explanation from a running gateway, for the current or an earlier revision.
fn ask_gateway(args: &ExplainArgs, question: &Question) -> anyhow::Result<String> {
    let client = args.remote.client()?;
    let at = args.at.map(|at| at.resolve(&client)).transpose()?;
    let at = at.map(|at| format!("at={at}&")).unwrap_or_default();
    let format = if args.remote.json { "json" } else { "text" };
    let path = format!("/yumen/v1/explain?{at}format={format}");
    let body = serde_json::to_vec(question)?;
    let answer = client.send(&Method::POST, &path, &[], Some(body.into()))?;
    match args.remote.json {
        true => Ok(format!("{}\n", serde_json::to_string_pretty(&answer.json()?)?)),
        false => answer.text(),
    }
}

/// Explains by the resources of a file.
fn explain_file(file: &Path, node: &NodeFile, question: &Question) -> anyhow::Result<ExplainResult> {
    let loaded = offline::load(file, node)?;
    // With a broken text there are no routes, and the explanation would be of none.
    let of_file = loaded.problems.iter().filter(|problem| problem.object == "file").cloned();
    let (broken, warnings): (Vec<Problem>, Vec<Problem>) =
        of_file.partition(|problem| problem.level == ProblemLevel::Error);
    if !broken.is_empty() {
        bail!(loaded.source.refuse(&broken));
    }
    print_problems(&warnings, Some(&loaded.source));
    explain_compiled(&loaded.snapshot, &loaded.resources, &loaded.problems, question)
}

/// Explains by the translation of Kubernetes manifests.
fn explain_manifests(
    paths: &[PathBuf],
    node: &NodeFile,
    mut question: Question,
) -> anyhow::Result<ExplainResult> {
    let loaded = offline::load_manifests(paths, node)?;
    print_problems(&loaded.problems(), None);
    if question.listener.is_none() {
        question.listener = Some(listener_choice::choose(&loaded.snapshot, &question)?.to_string());
    }
    let (translated, snapshot) = (&loaded.translated, &loaded.snapshot);
    let mut explanation = explain_compiled(snapshot, &translated.resources, &loaded.defects, &question)?;
    let (upstream, remarks) = match &mut explanation {
        ExplainResult::Request(explained) => {
            (explained.upstream.as_ref().map(|upstream| &upstream.view), &mut explained.remarks)
        }
        ExplainResult::Stream(explained) => (explained.upstream.as_ref(), &mut explained.remarks),
    };
    let service = upstream.and_then(|upstream| translated.origin(&upstream.origin));
    if let Some(service) = service.filter(|service| loaded.manifests.placeholders.contains(*service)) {
        let message = format!("stands for the endpoints of {service}, which no manifest has");
        remarks.push(format!("{PLACEHOLDER_ADDRESS} {message}"));
    }
    Ok(explanation)
}

/// Prints problems on standard error. Best effort: the explanation is complete without them.
fn print_problems(problems: &[Problem], source: Option<&SourceText>) {
    let rendered = render(problems, source, has_colors(&std::io::stderr()));
    let _ = std::io::stderr().lock().write_all(rendered.as_bytes());
}

fn explain_compiled(
    snapshot: &Snapshot,
    resources: &[Resource],
    problems: &[Problem],
    question: &Question,
) -> anyhow::Result<ExplainResult> {
    let text = |kind: Kind, id: &str| -> Option<Arc<str>> {
        let found = resources.iter().find(|one| one.kind == kind && *one.id == *id);
        found.map(|one| one.json.clone())
    };
    let now = yumen_proxy::clock::exact();
    let context = ExplainContext { now, problems, text: Some(&text), ..ExplainContext::default() };
    explain_any(snapshot, question, &context).map_err(|invalid| match invalid.path.as_str() {
        "" => anyhow!(invalid.message),
        path => anyhow!("{path}: {}", invalid.message),
    })
}
