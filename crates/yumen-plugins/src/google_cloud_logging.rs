//! `google-cloud-logging`: writes log entries to Google Cloud Logging.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use yumen_config::schema::InvalidSettings;
use yumen_plugin::{
    GoogleAccount, PluginBuildContext, SinkAddress, SinkBatch, SinkEncoder, SinkFraming, SinkReply,
    SinkRequest, SinkTls, SinkVerdict, Var,
};

use crate::log_time::write_utc_ms;
use crate::logging::json_text::{ObjectWriter, write_json_text};
use crate::logging::{BatchSettings, BodySettings, FormatSettings, LogEntry, LoggerKind, LoggerParts, post};
use crate::sink_url::SinkUrl;

#[cfg(test)]
mod tests;

/// Milliseconds until a request fails.
const TIMEOUT_MS: u64 = 10_000;

/// Settings of `google-cloud-logging`.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(extend(
    "oneOf" = [{"required": ["auth_config"]}, {"required": ["auth_file"]}],
    "encrypt_fields" = ["auth_config.private_key"]
))]
pub(crate) struct GoogleLoggingSettings {
    /// The service account.
    auth_config: Option<GoogleAccountSettings>,
    /// Path of a JSON file with the service account. The node reads it when the object with these settings is compiled.
    auth_file: Option<String>,
    /// The monitored resource of the entries.
    #[serde(default = "resource")]
    resource: GoogleResource,
    /// Id of the log.
    #[serde(default = "log_id")]
    log_id: String,
    /// Whether the certificates of the servers are verified.
    #[serde(default = "ssl_verify")]
    ssl_verify: bool,
    /// Name in log messages of the node.
    #[serde(default = "name")]
    name: String,
    #[serde(flatten)]
    batch: BatchSettings,
    #[serde(flatten)]
    format: FormatSettings,
}

/// A service account.
#[derive(Clone, Deserialize, JsonSchema)]
#[schemars(extend("required" = ["client_email", "private_key", "project_id", "token_uri"]))]
struct GoogleAccountSettings {
    /// Address of the account.
    client_email: String,
    /// RSA key in PEM, which signs the requests for access tokens.
    private_key: String,
    /// Id of the project.
    project_id: String,
    /// URL for access tokens.
    #[serde(default = "token_uri")]
    token_uri: String,
    /// URL for entries.
    #[serde(default = "entries_uri")]
    entries_uri: String,
    /// Scopes of the access tokens.
    #[serde(default = "scope")]
    #[schemars(length(min = 1), extend("uniqueItems" = true))]
    scope: Vec<String>,
    /// The same as `scope`, and preferred to it.
    #[schemars(length(min = 1), extend("uniqueItems" = true))]
    scopes: Option<Vec<String>>,
}

impl std::fmt::Debug for GoogleAccountSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The key must not appear in logs.
        f.debug_struct("GoogleAccountSettings")
            .field("client_email", &self.client_email)
            .finish_non_exhaustive()
    }
}

/// A monitored resource.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
struct GoogleResource {
    /// Type, such as `global` or `k8s_container`.
    #[serde(rename = "type")]
    kind: String,
    /// Labels of the resource.
    labels: Option<Map<String, Value>>,
}

fn resource() -> GoogleResource {
    GoogleResource { kind: "global".to_owned(), labels: None }
}

fn log_id() -> String {
    "apisix.apache.org%2Flogs".to_owned()
}

fn ssl_verify() -> bool {
    true
}

fn name() -> String {
    "google-cloud-logging".to_owned()
}

fn token_uri() -> String {
    "https://oauth2.googleapis.com/token".to_owned()
}

fn entries_uri() -> String {
    "https://logging.googleapis.com/v2/entries:write".to_owned()
}

fn scope() -> Vec<String> {
    ["logging.read", "logging.write", "logging.admin", "cloud-platform"]
        .map(|name| format!("https://www.googleapis.com/auth/{name}"))
        .into()
}

/// The plugin.
pub(crate) struct GoogleCloudLogging {
    /// Members that all entries have, as JSON without braces.
    common: Vec<u8>,
    request_id: Var,
}

impl LoggerKind for GoogleCloudLogging {
    const NAME: &'static str = "google-cloud-logging";
    const PRIORITY: i32 = 407;
    type Config = GoogleLoggingSettings;

    fn build(
        config: GoogleLoggingSettings,
        setup: &PluginBuildContext<'_>,
    ) -> Result<LoggerParts<Self>, InvalidSettings> {
        let (path, account) = account(&config, setup)?;
        let entries = SinkUrl::parse(&format!("{path}.entries_uri"), &account.entries_uri)?;
        let tokens = SinkUrl::parse(&format!("{path}.token_uri"), &account.token_uri)?;
        let resource = match &config.resource.labels {
            Some(labels) => json!({ "type": config.resource.kind, "labels": labels }),
            None => json!({ "type": config.resource.kind }),
        };
        let log_name = format!("projects/{}/logs/{}", account.project_id, config.log_id);
        let common = json!({
            "logName": log_name,
            "resource": resource,
            "labels": { "source": "apache-apisix-google-cloud-logging" },
        });
        let common = common.to_string().trim_matches(['{', '}']).to_owned();
        // The braces of the last member were cut off with those of the object.
        let common = format!("{common}}}").into_bytes();
        let encoder = GoogleEncoder { target: entries.target };
        let address = SinkAddress::Google(Box::new(GoogleAccount {
            endpoint: entries.origin,
            token_endpoint: tokens.origin,
            token_target: tokens.target,
            token_url: account.token_uri,
            client_email: account.client_email,
            private_key: account.private_key,
            scope: account.scopes.unwrap_or(account.scope).join(" "),
            tls: SinkTls { verify: config.ssl_verify, ..SinkTls::default() },
            timeout_ms: TIMEOUT_MS,
        }));
        let sink = config.batch.sink(config.name, address, encoder, setup);
        let kind = GoogleCloudLogging { common, request_id: Var::parse("request_id") };
        Ok(LoggerParts { kind, format: config.format, bodies: BodySettings::default(), sink })
    }

    fn render(&self, entry: &LogEntry<'_, '_>, out: &mut Vec<u8>) {
        let (ex, outcome) = (entry.ex, entry.outcome);
        let mut object = ObjectWriter::begin(out);
        // Equal ids of repeated entries are taken once.
        let id = self.request_id.get(ex);
        object.text("insertId", id.as_deref().unwrap_or_default());
        let time = object.member("timestamp");
        time.push(b'"');
        write_utc_ms(time, ex.now.unix_ms + outcome.duration_us / 1000);
        time.push(b'"');
        if entry.is_custom() {
            entry.write_json(object.member("jsonPayload"));
        } else {
            write_http_request(entry, object.member("httpRequest"));
            let mut payload = ObjectWriter::begin(object.member("jsonPayload"));
            if let Some(route) = ex.route.info {
                payload.text("route_id", &*route.id);
                payload.text("service_id", &*route.service_id);
            }
            payload.end();
        }
        object.end();
        // Constant members behind the last one.
        out.pop();
        out.push(b',');
        out.extend_from_slice(&self.common);
        out.push(b'}');
    }
}

/// The service account, and the path of the settings that have it.
fn account(
    config: &GoogleLoggingSettings,
    setup: &PluginBuildContext<'_>,
) -> Result<(&'static str, GoogleAccountSettings), InvalidSettings> {
    match (&config.auth_config, &config.auth_file, setup.objects) {
        (Some(account), _, _) => Ok(("auth_config", account.clone())),
        (None, Some(file), Some(objects)) => {
            let refused = |why: String| InvalidSettings::at("auth_file", why);
            let text = objects.read_file(file).map_err(refused)?;
            let account = serde_json::from_str(&text);
            account.map(|account| ("auth_file", account)).map_err(|error| refused(format!("{file}: {error}")))
        }
        // The file may be on another node only.
        _ => Ok((
            "auth_file",
            GoogleAccountSettings {
                client_email: String::new(),
                private_key: String::new(),
                project_id: String::new(),
                token_uri: token_uri(),
                entries_uri: entries_uri(),
                scope: scope(),
                scopes: None,
            },
        )),
    }
}

/// `HttpRequest` of the API.
fn write_http_request(entry: &LogEntry<'_, '_>, out: &mut Vec<u8>) {
    let (ex, outcome) = (entry.ex, entry.outcome);
    let mut object = ObjectWriter::begin(out);
    object.text("requestMethod", ex.request.method_name());
    let mut url = Vec::with_capacity(128);
    entry.write_url(&mut url);
    object.text("requestUrl", &url);
    object.number("requestSize", outcome.received_bytes);
    object.number("status", outcome.status.into());
    object.number("responseSize", outcome.sent_bytes);
    if let Some(agent) = ex.request.fields.get("User-Agent") {
        object.text("userAgent", agent);
    }
    object.text("remoteIp", ex.client.ip.to_string());
    if let Some(endpoint) = outcome.endpoint {
        object.text("serverIp", endpoint.to_string());
    }
    let (latency_us, _) = entry.latency_us();
    let ms = latency_us / 1000;
    write_json_text(object.member("latency"), format!("{}.{:03}s", ms / 1000, ms % 1000).as_bytes());
    object.end();
}

#[derive(Debug)]
struct GoogleEncoder {
    target: String,
}

impl SinkEncoder for GoogleEncoder {
    fn framing(&self) -> SinkFraming {
        SinkFraming { open: b"{\"entries\":[", separator: b",", close: b"],\"partialSuccess\":false}" }
    }

    fn requests(&self, batch: &SinkBatch<'_>) -> Vec<SinkRequest> {
        let fields = vec![("Content-Type".to_owned(), "application/json".to_owned())];
        vec![post(batch, &self.target, fields, batch.framed(self.framing()))]
    }

    fn verdict(&self, reply: &SinkReply) -> SinkVerdict {
        match reply.status {
            200 => SinkVerdict::Sent,
            status => {
                let body = reply.excerpt();
                SinkVerdict::Retry(format!("google returned status: {status}, body: {body}"))
            }
        }
    }
}
