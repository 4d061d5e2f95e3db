//! Commands for a running gateway: history, diff, rollback, export, import, problems, lint.

use std::fmt;
use std::io::{ErrorKind, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use hyper::Method;
use serde_json::Value;
use yumen_base::{Problem, ProblemLevel, quantity, utc_text};
use yumen_config::NodeConfig;
use yumen_config::document::{self, DocumentPlaces};
use yumen_config::node::listen_address;

use super::client::{OperatorClient, OperatorResponse, OperatorTarget, OperatorTlsArgs};
use super::revision_arg::RevisionArg;
use super::{confirmation, offline, output};
use crate::admin_socket;
use crate::diagnostics::{
    ConfigProblems, ExitStatus, SourceText, has_colors, problem_from_json, render, split_effect,
};
use crate::node::NodeFile;
use crate::process::private_file;

/// Arguments that select the gateway.
#[derive(Debug, Args)]
pub(crate) struct RemoteArgs {
    /// URL of the admin listener [default: the admin socket in the data directory, else the configured listener]
    #[arg(long, value_name = "URL", env = "YUMEN_ADMIN")]
    admin: Option<String>,
    /// Admin key; the admin socket needs none
    #[arg(long, value_name = "KEY", env = "YUMEN_ADMIN_KEY", hide_env_values = true)]
    key: Option<String>,
    #[command(flatten)]
    tls: OperatorTlsArgs,
    /// Data directory of the gateway on this machine [default: store.data_dir of the configuration, else data]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) node: NodeFile,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl RemoteArgs {
    pub(crate) fn client(&self) -> anyhow::Result<OperatorClient> {
        Ok(OperatorClient::new(self.target()?, self.key.clone())?.with_tls(self.tls.clone()))
    }

    /// A client of the explicitly named gateway, or of the admin socket if one answers.
    pub(crate) fn named_client(&self) -> anyhow::Result<Option<OperatorClient>> {
        let node = self.node.read()?;
        let is_named = self.admin.is_some() || self.data_dir.is_some();
        match is_named || admin_socket::connect(&admin_socket::path(&node)).is_ok() {
            true => self.client().map(Some),
            false => Ok(None),
        }
    }

    fn target(&self) -> anyhow::Result<OperatorTarget> {
        match (&self.data_dir, &self.admin) {
            (Some(_), Some(url)) if std::env::var("YUMEN_ADMIN").ok().as_ref() != Some(url) => {
                bail!("--admin and --data-dir name two gateways: give one of them")
            }
            // Named on the command line, so the variable does not count.
            (Some(directory), _) => Ok(OperatorTarget::Socket(admin_socket::in_directory(directory))),
            (None, Some(url)) => OperatorTarget::url(url),
            (None, None) => self.default_target(),
        }
    }

    /// The admin socket of the configured data directory, or the configured listener if no gateway answers there.
    fn default_target(&self) -> anyhow::Result<OperatorTarget> {
        let node = self.node.read()?;
        let socket = admin_socket::path(&node);
        let failed = match admin_socket::connect(&socket) {
            Ok(_) => return Ok(OperatorTarget::Socket(socket)),
            Err(error) => error,
        };
        let scheme = if node.admin.tls.is_on() { "https" } else { "http" };
        let name = socket.display();
        match listen_address(&node.admin.listen) {
            // Of another user: with the key, the listener serves this one.
            _ if failed.kind() == ErrorKind::PermissionDenied && self.key.is_none() => bail!(
                "{name} admits the user of the gateway and root: run the command as one of them, or give --key"
            ),
            Some(mut address) => {
                if address.ip().is_unspecified() {
                    address.set_ip(Ipv4Addr::LOCALHOST.into());
                }
                let url = format!("{scheme}://{address}");
                // Without a key the listener refuses most requests, so the reason is that no socket was found.
                if self.key.is_none() && node.admin.key_required && TcpStream::connect(address).is_err() {
                    bail!(
                        "no gateway answers at {name} or {url}; start one (yumen run), or name a running one by \
                         --data-dir, --config or --admin"
                    );
                }
                OperatorTarget::url(&url)
            }
            None => bail!("no gateway answers at {name}, and admin.listen is empty; start one (yumen run)"),
        }
    }

    /// Prints a document as JSON or as text.
    pub(crate) fn print(
        &self,
        document: &Value,
        words: impl FnOnce(&Value) -> String,
    ) -> anyhow::Result<ExitCode> {
        let text = match self.json {
            true => format!("{}\n", serde_json::to_string_pretty(document)?),
            false => words(document),
        };
        output::print(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// `yumen history`: prints revisions.
pub(crate) fn history(remote: &RemoteArgs, object: Option<&str>, limit: u64) -> anyhow::Result<ExitCode> {
    let object = object.map(|object| format!("&object={object}")).unwrap_or_default();
    let found = remote.client()?.get(&format!("/yumen/v1/revisions?limit={limit}{object}"))?.json()?;
    remote.print(&found, |found| {
        if list(&found["revisions"]).is_empty() {
            return "no revisions\n".to_owned();
        }
        let lines = list(&found["revisions"]).iter().map(|one| {
            let changes = list(&one["changes"]);
            let first = changes
                .first()
                .map(|change| format!("{} {}", text(&change["action"]), text(&change["object"])));
            let more =
                if changes.len() > 1 { format!(" and {} more", changes.len() - 1) } else { String::new() };
            let reason = one["reason"].as_str().map(|reason| format!("  ({reason})")).unwrap_or_default();
            let time = utc_text(one["time_unix_ms"].as_u64().unwrap_or(0) / 1000);
            format!(
                "{:>6}  {time}  {:<10} {}{more}{reason}\n",
                one["revision"],
                text(&one["author"]),
                first.unwrap_or_default()
            )
        });
        lines.collect()
    })
}

/// `yumen diff`: prints the changes between two revisions.
pub(crate) fn diff(
    remote: &RemoteArgs,
    from: RevisionArg,
    to: Option<RevisionArg>,
) -> anyhow::Result<ExitCode> {
    let client = remote.client()?;
    let from = from.resolve(&client)?;
    let to = to.map(|to| to.resolve(&client)).transpose()?;
    let to = to.map(|to| format!("&to={to}")).unwrap_or_default();
    let found = client.get(&format!("/yumen/v1/diff?from={from}{to}"))?.json()?;
    remote.print(&found, |found| match list(&found["changes"]) {
        [] => "no difference\n".to_owned(),
        changes => changes.iter().map(difference).collect(),
    })
}

fn difference(change: &Value) -> String {
    let sign = match text(&change["action"]) {
        "created" => '+',
        "deleted" => '-',
        _ => '~',
    };
    let mut out = format!("{sign} {}\n", text(&change["object"]));
    for path in list(&change["paths"]) {
        out.push_str(&format!("    {}: {} -> {}\n", text(&path["path"]), path["before"], path["after"]));
    }
    out
}

/// Confirmation and reason of a change of several objects.
#[derive(Debug, Args)]
pub(crate) struct ChangeArgs {
    /// Skip the confirmation for large changes; without it and without a terminal, such a change is refused
    #[arg(long, short = 'y', visible_alias = "confirm")]
    pub(crate) yes: bool,
    /// Reason, recorded in the history
    #[arg(long)]
    reason: Option<String>,
}

impl ChangeArgs {
    /// Sends a change, and once more if it needs a confirmation and gets one.
    fn send(
        &self,
        client: &OperatorClient,
        path: &str,
        body: Option<&[u8]>,
    ) -> anyhow::Result<OperatorResponse> {
        let fields: Vec<(&str, &str)> =
            self.reason.iter().map(|reason| ("x-yumen-reason", reason.as_str())).collect();
        let send = |confirm: bool| {
            let path = format!("{path}confirm={confirm}&wait=applied");
            client.send(&Method::POST, &path, &fields, body.map(|body| body.to_vec().into()))
        };
        let answer = send(self.yes)?;
        let document: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        match document["needs_confirmation"].as_str() {
            None => Ok(answer),
            Some(why) if confirmation::ask(why, "Apply this change?") => send(true),
            Some(why) => bail!(UnconfirmedChange(why.to_owned())),
        }
    }
}

/// A large change without a confirmation: exit status 3.
#[derive(Debug)]
pub(crate) struct UnconfirmedChange(String);

impl fmt::Display for UnconfirmedChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nothing was written: {}; repeat with --yes to confirm", self.0)
    }
}

impl std::error::Error for UnconfirmedChange {}

/// `yumen rollback`: restores a revision as a new one.
pub(crate) fn rollback(
    remote: &RemoteArgs,
    revision: RevisionArg,
    change: &ChangeArgs,
) -> anyhow::Result<ExitCode> {
    let client = remote.client()?;
    let revision = revision.resolve(&client)?;
    let path = format!("/yumen/v1/revisions/{revision}/rollback?");
    let done = written(change.send(&client, &path, None)?, None)?;
    for expired in list(&done["expired"]) {
        let line = format!("warning: {} is not put back: it has expired since\n", text(expired));
        let _ = std::io::stderr().lock().write_all(line.as_bytes());
    }
    remote.print(&done, |done| match done["changed"].as_u64() {
        Some(0) => format!("nothing to do: the active configuration equals revision {revision}\n"),
        changed => format!(
            "revision {} restores revision {revision}: {} changed\n",
            done["revision"],
            quantity(changed.unwrap_or(0) as usize, "object")
        ),
    })
}

/// Document of a successful write of several objects. Refused objects are errors, with their places in `source`.
fn written(answer: OperatorResponse, source: Option<&SourceText>) -> anyhow::Result<Value> {
    let document: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let errors = list(&document["errors"]);
    if errors.is_empty() {
        return answer.json();
    }
    let mut problems: Vec<Problem> = errors.iter().map(problem_from_json).collect();
    if let Some(source) = source {
        problems = detailed(problems, source);
    }
    let shown = render(&problems, source, has_colors(&std::io::stderr()));
    let message = document["error_msg"].as_str().unwrap_or("nothing was written");
    bail!(ConfigProblems { status: ExitStatus::Problems, problems, rendered: format!("{shown}{message}\n") })
}

/// The problems with their places. Where the same object is refused here too, the findings here replace the gateway's
/// only one.
fn detailed(problems: Vec<Problem>, source: &SourceText) -> Vec<Problem> {
    let (resources, _) = document::parse_literally(&source.text);
    let mut compiler = offline::compiler(&NodeConfig::default());
    compiler.replace_all(resources, 1);
    let mut found = compiler.problems();
    found.retain(|problem| problem.level == ProblemLevel::Error);
    let mut detailed = Vec::new();
    for problem in problems {
        let before = detailed.len();
        detailed.extend(found.iter().filter(|other| other.object == problem.object).cloned());
        if detailed.len() == before {
            detailed.push(problem);
        }
    }
    for problem in &mut detailed {
        // The effect would be that of an object in force, and nothing was written.
        let help = problem.hint.as_deref().and_then(|hint| split_effect(hint).0).map(str::to_owned);
        problem.hint = help;
    }
    DocumentPlaces::of_submitted(&source.name, &source.text).locate(&mut detailed);
    detailed
}

/// `yumen lint` without a file; exit status 1 if there is an error.
pub(crate) fn lint(remote: &RemoteArgs, strict: bool) -> anyhow::Result<ExitCode> {
    let found = remote.client()?.get(&format!("/yumen/v1/lint?strict={strict}"))?.json()?;
    show_problems(remote, &found, "nothing found\n")
}

/// `yumen problems`; exit status 1 if there is an error.
pub(crate) fn problems(remote: &RemoteArgs) -> anyhow::Result<ExitCode> {
    let found = remote.client()?.get("/yumen/v1/problems")?.json()?;
    show_problems(remote, &found, "no problems\n")
}

fn show_problems(remote: &RemoteArgs, found: &Value, none: &str) -> anyhow::Result<ExitCode> {
    remote.print(found, |found| match list(found) {
        [] => none.to_owned(),
        problems => {
            let problems: Vec<Problem> = problems.iter().map(problem_from_json).collect();
            render(&problems, None, has_colors(&std::io::stdout()))
        }
    })?;
    let is_error = |problem: &Value| problem["level"] == "error";
    Ok(if list(found).iter().any(is_error) { ExitStatus::Problems } else { ExitStatus::Done }.into())
}

/// `yumen export`: prints or saves the configuration.
pub(crate) fn export(remote: &RemoteArgs, out: Option<&Path>) -> anyhow::Result<ExitCode> {
    let client = remote.client()?;
    let text = match remote.json {
        true => {
            // Older gateways ignore `format` and respond in YAML.
            let document = client.get("/yumen/v1/export?format=json")?.json()?;
            format!("{}\n", serde_json::to_string_pretty(&document)?)
        }
        false => client.get("/yumen/v1/export")?.text()?,
    };
    warn_of_failing_tests(&client);
    match out {
        None => drop(output::print(&text)?),
        // The document contains private keys.
        Some(path) => private_file::write(path, |file| {
            file.write_all(text.as_bytes()).with_context(|| format!("cannot write {}", path.display()))
        })?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Warns of failing tests: a gateway that starts with such a file serves none of it.
fn warn_of_failing_tests(client: &OperatorClient) {
    // Best effort: the export is complete without the warning.
    let problems = client.get("/yumen/v1/problems").and_then(|answer| answer.json()).unwrap_or_default();
    let is_test = |problem: &&Value| text_of(problem, "object").starts_with("tests/");
    for problem in list(&problems).iter().filter(is_test) {
        let (object, message) = (text_of(problem, "object"), text_of(problem, "message"));
        let line = format!("warning: {object} fails, and a file whose tests fail is not served: {message}\n");
        let _ = std::io::stderr().lock().write_all(line.as_bytes());
    }
}

/// `yumen import file`: writes a document into the store.
pub(crate) fn import(
    remote: &RemoteArgs,
    file: &Path,
    replace: bool,
    change: &ChangeArgs,
) -> anyhow::Result<ExitCode> {
    let source = SourceText::read(file)?;
    if source.text.contains("${{") {
        let line = format!(
            "warning: {}: ${{{{...}}}} is imported as it is: only a resource file that is served has variables\n",
            file.display()
        );
        let _ = std::io::stderr().lock().write_all(line.as_bytes());
    }
    refuse_broken(&source)?;
    let mode = if replace { "replace" } else { "merge" };
    let path = format!("/yumen/v1/import?mode={mode}&");
    let answer = change.send(&remote.client()?, &path, Some(source.text.as_bytes()))?;
    let done = written(answer, Some(&source))?;
    remote.print(&done, |done| {
        let counted = format!(
            "revision {}: {} written, {} deleted, {} unchanged\n",
            done["revision"], done["put"], done["deleted"], done["unchanged"]
        );
        let ends = list(&done["ends"]).iter().map(|name| format!("{} ends as before\n", text(name)));
        ends.fold(counted, |lines, line| lines + &line)
    })
}

/// Refuses a document whose text has errors, with their places; the gateway would refuse the document without them.
pub(crate) fn refuse_broken(source: &SourceText) -> anyhow::Result<()> {
    let (_, mut problems) = document::parse_literally(&source.text);
    problems.retain(|problem| problem.level == ProblemLevel::Error);
    if problems.is_empty() {
        return Ok(());
    }
    DocumentPlaces::of_submitted(&source.name, &source.text).locate(&mut problems);
    bail!(source.refuse(&problems))
}

fn text_of<'a>(value: &'a Value, name: &str) -> &'a str {
    text(&value[name])
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
