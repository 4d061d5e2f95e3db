//! Commands for a running gateway: history, diff, rollback, export, import, problems, lint.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use hyper::Method;
use serde_json::Value;

use super::client::{OperatorClient, OperatorResponse, OperatorTlsArgs};
use super::output;
use crate::process::private_file;

/// Arguments that select the gateway.
#[derive(Debug, Args)]
pub(crate) struct RemoteArgs {
    /// URL of the admin listener
    #[arg(long, value_name = "URL", env = "YUMEN_ADMIN", default_value = "http://127.0.0.1:9180")]
    admin: String,
    /// Admin key
    #[arg(long, value_name = "KEY", env = "YUMEN_ADMIN_KEY", hide_env_values = true)]
    key: Option<String>,
    #[command(flatten)]
    tls: OperatorTlsArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl RemoteArgs {
    pub(crate) fn client(&self) -> anyhow::Result<OperatorClient> {
        Ok(OperatorClient::new(&self.admin, self.key.clone())?.with_tls(self.tls.clone()))
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
pub(crate) fn history(remote: &RemoteArgs, object: Option<&str>, limit: usize) -> anyhow::Result<ExitCode> {
    let object = object.map(|object| format!("&object={object}")).unwrap_or_default();
    let found = remote.client()?.get(&format!("/yumen/v1/revisions?limit={limit}{object}"))?.json()?;
    remote.print(&found, |found| {
        let lines = list(&found["revisions"]).iter().map(|one| {
            let changes = list(&one["changes"]);
            let first = changes
                .first()
                .map(|change| format!("{} {}", text(&change["action"]), text(&change["object"])));
            let more =
                if changes.len() > 1 { format!(" and {} more", changes.len() - 1) } else { String::new() };
            let reason = one["reason"].as_str().map(|reason| format!("  ({reason})")).unwrap_or_default();
            let time = httpdate::fmt_http_date(
                std::time::UNIX_EPOCH
                    + std::time::Duration::from_millis(one["time_unix_ms"].as_u64().unwrap_or(0)),
            );
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
pub(crate) fn diff(remote: &RemoteArgs, from: u64, to: Option<u64>) -> anyhow::Result<ExitCode> {
    let to = to.map(|to| format!("&to={to}")).unwrap_or_default();
    let found = remote.client()?.get(&format!("/yumen/v1/diff?from={from}{to}"))?.json()?;
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

/// `yumen rollback`: restores a revision as a new one.
pub(crate) fn rollback(
    remote: &RemoteArgs,
    revision: u64,
    confirm: bool,
    reason: Option<&str>,
) -> anyhow::Result<ExitCode> {
    let fields: Vec<(&str, &str)> = reason.map(|reason| ("x-yumen-reason", reason)).into_iter().collect();
    let path = format!("/yumen/v1/revisions/{revision}/rollback?confirm={confirm}&wait=applied");
    let done = written(remote.client()?.send(&Method::POST, &path, &fields, None)?)?;
    for expired in list(&done["expired"]) {
        let line = format!("warning: {} is not put back: it has expired since\n", text(expired));
        let _ = std::io::stderr().lock().write_all(line.as_bytes());
    }
    remote.print(&done, |done| match done["changed"].as_u64() {
        Some(0) => format!("nothing to do: the active configuration equals revision {revision}\n"),
        _ => format!(
            "revision {} restores revision {revision}: {} objects changed\n",
            done["revision"], done["changed"]
        ),
    })
}

/// Document of a successful write of several objects. Prints the error of each object; fails if confirmation
/// is needed.
fn written(answer: OperatorResponse) -> anyhow::Result<Value> {
    let document: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    for error in list(&document["errors"]) {
        let line = format!("error: {}: {}\n", text_of(error, "object"), text_of(error, "error"));
        let _ = std::io::stderr().lock().write_all(line.as_bytes());
    }
    if let Some(why) = document["needs_confirmation"].as_str() {
        bail!("nothing was written: {why}; repeat with --confirm to confirm");
    }
    answer.json()
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
        problems => problems.iter().map(problem).collect(),
    })?;
    let is_error = |problem: &Value| problem["level"] == "error";
    Ok(if list(found).iter().any(is_error) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn problem(problem: &Value) -> String {
    let part = |name: &str| problem[name].as_str().filter(|text| !text.is_empty());
    let path = part("path").map(|path| format!(" {path}")).unwrap_or_default();
    let hint = part("hint").map(|hint| format!("\n    {hint}")).unwrap_or_default();
    format!(
        "{}: {}{path}: {}{hint}\n",
        text(&problem["level"]),
        text(&problem["object"]),
        text(&problem["message"])
    )
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
    confirm: bool,
    reason: Option<&str>,
) -> anyhow::Result<ExitCode> {
    let document = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    if document.windows(3).any(|some| some == b"${{") {
        let line = format!(
            "warning: {}: ${{{{...}}}} is imported as it is: only a resource file that is served has variables\n",
            file.display()
        );
        let _ = std::io::stderr().lock().write_all(line.as_bytes());
    }
    let mode = if replace { "replace" } else { "merge" };
    let fields: Vec<(&str, &str)> = reason.map(|reason| ("x-yumen-reason", reason)).into_iter().collect();
    let path = format!("/yumen/v1/import?mode={mode}&confirm={confirm}&wait=applied");
    let answer = remote.client()?.send(&Method::POST, &path, &fields, Some(document.into()))?;
    let done = written(answer)?;
    remote.print(&done, |done| {
        let counted = format!(
            "revision {}: {} written, {} deleted, {} unchanged\n",
            done["revision"], done["put"], done["deleted"], done["unchanged"]
        );
        let ends = list(&done["ends"]).iter().map(|name| format!("{} ends as before\n", text(name)));
        ends.fold(counted, |lines, line| lines + &line)
    })
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
