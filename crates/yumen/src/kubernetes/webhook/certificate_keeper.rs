//! The task that keeps the certificate of the webhook: every replica serves that of a Secret, which the leader issues
//! and renews, and whose authorities the leader writes into the ValidatingWebhookConfiguration.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use yumen_base::Problem;
use yumen_config::node::WebhookConfig;
use yumen_kubernetes_client::{ApiClient, ApiError, LeaseView, ObjectAddress, ObjectPatch, PatchMethod};

use super::ServedWebhook;
use super::issued_identity::IssuedIdentity;
use super::resource_checker::webhook_problem;
use super::served_identity::ServedIdentity;

/// Pause between two looks at the Secret. Authorities of a renewed certificate are trusted for weeks, so replicas need
/// not be faster.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// Pause while there is no certificate, or the last look failed.
const RETRY_EVERY: Duration = Duration::from_secs(2);

/// The running task; dropping it ends the task.
pub(in crate::kubernetes) struct CertificateKeeper {
    task: JoinHandle<()>,
    problem: Arc<Mutex<Option<Problem>>>,
}

impl Drop for CertificateKeeper {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct KeeperTask {
    client: ApiClient,
    lease: LeaseView,
    namespace: String,
    settings: WebhookConfig,
    identity: Arc<ServedIdentity>,
    problem: Arc<Mutex<Option<Problem>>>,
    served: Option<ServedTexts>,
}

/// The certificate and key in use, PEM.
#[derive(PartialEq)]
struct ServedTexts {
    certificate: String,
    key: String,
}

impl CertificateKeeper {
    /// Starts the task. Certificates are written while the lease is held.
    pub(in crate::kubernetes) fn start(
        webhook: &ServedWebhook,
        client: ApiClient,
        lease: LeaseView,
        namespace: String,
    ) -> CertificateKeeper {
        let problem = Arc::<Mutex<Option<Problem>>>::default();
        let task = KeeperTask {
            client,
            lease,
            namespace,
            settings: webhook.settings.clone(),
            identity: webhook.identity.clone(),
            problem: problem.clone(),
            served: None,
        };
        CertificateKeeper { task: tokio::spawn(task.run()), problem }
    }

    /// Why the webhook does not work, if it does not.
    pub(in crate::kubernetes) fn problem(&self) -> Option<Problem> {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl KeeperTask {
    async fn run(mut self) {
        loop {
            let looked = match self.settings.certificate.is_empty() {
                true => self.look().await,
                false => self.read_files(),
            };
            let is_settled = looked.is_ok() && self.served.is_some();
            let problem = looked.err().map(|(message, hint)| webhook_problem(message, hint));
            *self.problem.lock().unwrap_or_else(PoisonError::into_inner) = problem;
            let pause = if is_settled { LOOK_EVERY } else { RETRY_EVERY };
            // A new leader writes at once.
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                Some(_) = self.lease.changed() => {}
            }
        }
    }

    fn read_files(&mut self) -> Result<(), (String, &'static str)> {
        const HINT: &str = "correct kubernetes.webhook.certificate and key";
        // Two small local files: blocking is as short as a page fault.
        let read = |path: &str| {
            std::fs::read_to_string(path).map_err(|error| (format!("cannot read {path}: {error}"), HINT))
        };
        let texts =
            ServedTexts { certificate: read(&self.settings.certificate)?, key: read(&self.settings.key)? };
        self.serve(texts).map_err(|reason| (reason, HINT))
    }

    /// Serves the certificate of the Secret. The leader issues it, and writes its authorities.
    async fn look(&mut self) -> Result<(), (String, &'static str)> {
        const HINT: &str = "the webhook cannot be asked meanwhile; grant the rights of the chart's Role";
        let failed = |error: ApiError| (error.to_string(), HINT);
        let (found, version) = match self.client.get(&self.secret_address()).await {
            Ok(secret) => (IssuedIdentity::of_secret(&secret.json), Some(secret.resource_version)),
            Err(ApiError::NotFound(_)) => (None, None),
            Err(error) => return Err(failed(error)),
        };
        let now_s = yumen_proxy::clock::exact().unix_ms / 1000;
        let names = self.names();
        let is_due = found.as_ref().is_none_or(|found| found.is_due(&names, now_s));
        let is_leader = self.lease.is_held();
        let identity = match found {
            found if is_due && is_leader => {
                let issued = IssuedIdentity::issue(&names, found.as_ref(), now_s)
                    .map_err(|error| (error.to_string(), "correct kubernetes.webhook.names"))?;
                // Before the certificate is served: API servers that do not trust it yet could not ask.
                self.trust(&issued).await?;
                self.write(&issued, version.as_deref()).await.map_err(failed)?;
                tracing::info!("admission webhook certificate issued");
                issued
            }
            Some(found) => {
                if is_leader {
                    self.trust(&found).await?;
                }
                found
            }
            // The leader issues one.
            None => return Ok(()),
        };
        let hint = "delete the Secret, and the leader issues another certificate";
        let texts = ServedTexts { certificate: identity.certificate, key: identity.key };
        self.serve(texts).map_err(|reason| (reason, hint))
    }

    fn serve(&mut self, texts: ServedTexts) -> Result<(), String> {
        if self.served.as_ref() != Some(&texts) {
            self.identity.replace(&texts.certificate, &texts.key)?;
            self.served = Some(texts);
        }
        Ok(())
    }

    /// Writes the authorities into each webhook of the configuration that lacks them.
    async fn trust(&self, identity: &IssuedIdentity) -> Result<(), (String, &'static str)> {
        const HINT: &str = "the API server asks no gateway meanwhile; install the configuration, or correct kubernetes.webhook.configuration";
        if self.settings.configuration.is_empty() {
            return Ok(());
        }
        let at = self.configuration_address();
        let failed = |error: ApiError| (error.to_string(), HINT);
        let configuration = self.client.get(&at).await.map_err(failed)?;
        let bundle = STANDARD.encode(&identity.authorities);
        let Some(patch) = trusting_patch(&configuration.json, &at.name, &bundle) else { return Ok(()) };
        let body = patch.to_string();
        let patch = ObjectPatch { method: PatchMethod::Apply, is_status: false, body: &body };
        self.client.patch(&at, patch).await.map_err(failed)?;
        Ok(())
    }

    async fn write(&self, identity: &IssuedIdentity, version: Option<&str>) -> Result<(), ApiError> {
        let at = self.secret_address();
        let body = identity.secret(&at.name, &self.namespace, version).to_string();
        match version {
            None => self.client.create(&at, &body).await?,
            Some(_) => {
                let patch = ObjectPatch { method: PatchMethod::Merge, is_status: false, body: &body };
                self.client.patch(&at, patch).await?
            }
        };
        Ok(())
    }

    /// The names by which API servers reach the webhook.
    fn names(&self) -> Vec<String> {
        let (service, namespace) = (&self.settings.service, &self.namespace);
        let mut names = vec![
            format!("{service}.{namespace}.svc"),
            format!("{service}.{namespace}.svc.cluster.local"),
            format!("{service}.{namespace}"),
        ];
        names.extend(self.settings.names.iter().cloned());
        names
    }

    fn secret_address(&self) -> ObjectAddress {
        ObjectAddress {
            group: "".into(),
            version: "v1".into(),
            plural: "secrets".into(),
            namespace: Some(self.namespace.as_str().into()),
            name: self.settings.secret.as_str().into(),
        }
    }

    fn configuration_address(&self) -> ObjectAddress {
        ObjectAddress {
            group: "admissionregistration.k8s.io".into(),
            version: "v1".into(),
            plural: "validatingwebhookconfigurations".into(),
            namespace: None,
            name: self.settings.configuration.as_str().into(),
        }
    }
}

/// The patch that gives each webhook of a configuration the bundle; `None` if all have it. Server-side apply owns the
/// bundle alone, so the other members stay those of the chart.
pub(super) fn trusting_patch(configuration: &[u8], name: &str, bundle: &str) -> Option<Value> {
    let configuration: Value = serde_json::from_slice(configuration).unwrap_or_default();
    let webhooks = configuration["webhooks"].as_array()?;
    if webhooks.iter().all(|webhook| webhook["clientConfig"]["caBundle"] == bundle) {
        return None;
    }
    let entry = |webhook: &Value| json!({ "name": webhook["name"], "clientConfig": { "caBundle": bundle } });
    Some(json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": { "name": name },
        "webhooks": webhooks.iter().map(entry).collect::<Vec<Value>>(),
    }))
}
