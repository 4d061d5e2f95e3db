//! Asks a running gateway over its admin or status listener: one request, one answer.
//!
//! For commands; nothing of the data plane uses it.

use anyhow::{Context, bail};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use serde_json::Value;

/// How long a command waits for an answer.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(90);

/// Where a gateway listens for operators, and the key that opens it.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    base: Uri,
    key: Option<String>,
}

/// What it answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
}

impl Client {
    /// A client of `http://host:port`.
    pub(crate) fn new(base: &str, key: Option<String>) -> anyhow::Result<Client> {
        let base: Uri =
            base.parse().with_context(|| format!("`{base}` is no address such as http://127.0.0.1:9180"))?;
        if base.scheme_str() != Some("http") || base.authority().is_none() {
            bail!("`{base}` is no address such as http://127.0.0.1:9180");
        }
        Ok(Client { base, key })
    }

    /// One request; any status is an answer.
    pub(crate) fn send(
        &self,
        method: Method,
        path: &str,
        fields: &[(&str, &str)],
        body: Vec<u8>,
    ) -> anyhow::Result<Answer> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let exchange = self.exchange(method, path, fields, body);
            let waited = tokio::time::timeout(PATIENCE, exchange).await;
            waited.with_context(|| format!("{} does not answer", self.base))?
        })
    }

    /// GET, and the document it gives; another status than 200 is an error with its message.
    pub(crate) fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.send(Method::GET, path, &[], Vec::new())?.document()
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        fields: &[(&str, &str)],
        body: Vec<u8>,
    ) -> anyhow::Result<Answer> {
        let authority = self.base.authority().expect("checked when it was made");
        let address = (authority.host().trim_matches(['[', ']']), authority.port_u16().unwrap_or(80));
        let stream = tokio::net::TcpStream::connect(address).await.with_context(|| {
            format!("nobody answers at {} (is yumen running? --admin or YUMEN_ADMIN says where)", self.base)
        })?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let mut request = Request::builder().method(method).uri(path).header("host", authority.as_str());
        if let Some(key) = &self.key {
            request = request.header("x-api-key", key);
        }
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let response = sender.send_request(request.body(Full::new(Bytes::from(body)))?).await?;
        let status = response.status();
        Ok(Answer { status, body: response.into_body().collect().await?.to_bytes() })
    }
}

impl Answer {
    /// The answer as text; a status of failure is an error, as in [`Answer::document`].
    pub(crate) fn text(self) -> anyhow::Result<String> {
        match self.status.is_success() {
            true => Ok(String::from_utf8_lossy(&self.body).into_owned()),
            false => self.document().map(|document| document.to_string()),
        }
    }

    /// The answer as JSON; a status of failure is an error that carries the gateway's own message.
    pub(crate) fn document(self) -> anyhow::Result<Value> {
        let document: Value = serde_json::from_slice(&self.body).unwrap_or(Value::Null);
        if self.status.is_success() {
            return Ok(document);
        }
        let said = |name: &str| document[name].as_str().map(str::to_owned);
        let text = || String::from_utf8_lossy(&self.body).trim().to_owned();
        let message = said("error_msg").or_else(|| said("message")).unwrap_or_else(text);
        if self.status == StatusCode::UNAUTHORIZED {
            bail!(
                "{message}: give the admin key by --key or YUMEN_ADMIN_KEY (it was printed at the first start)"
            );
        }
        bail!("{} from the gateway: {message}", self.status);
    }
}
