//! Certificates by server name.

use std::any::Any;
use std::sync::Arc;

use yumen_base::Problem;
use yumen_config::decode;
use yumen_config::resource as config;

use super::judge::Flaw;
use super::{Compiler, LoadCertificate, Name, Staged, invalid};
use crate::snapshot::Certificate;

/// What is kept of an ssl object.
pub(super) struct SslHeld {
    certificate: Arc<Certificate>,
    snis: Vec<Box<str>>,
}

type Loaded = Box<[Arc<dyn Any + Send + Sync>]>;

fn pairs(written: &config::Ssl) -> impl Iterator<Item = (&str, &str)> {
    let more = written.certs.iter().flatten().zip(written.keys.iter().flatten());
    let all = std::iter::once((&written.cert, &written.key)).chain(more);
    all.map(|(cert, key)| (cert.as_str(), key.as_str()))
}

/// A pair of which a part stands elsewhere.
fn is_reference((cert, key): (&str, &str)) -> bool {
    cert.starts_with('$') || key.starts_with('$')
}

/// Loads all pairs of an object; references are left out.
pub(super) fn load(with: &LoadCertificate, written: &config::Ssl) -> Result<Loaded, Flaw> {
    let here = pairs(written).enumerate().filter(|(_, pair)| !is_reference(*pair));
    here.map(|(at, (cert, key))| with(cert, key).map_err(|message| Flaw::Certificate { at, message }))
        .collect()
}

impl Compiler {
    pub(super) fn stage_ssl(&mut self, name: &Name, json: &str) -> Staged {
        let written: config::Ssl = decode(json).map_err(|error| vec![invalid(name, error)])?;
        let keys = load(&self.env.load_certificate, &written).map_err(|flaw| match flaw {
            Flaw::Certificate { at, message } => {
                let path = if at == 0 { "cert".to_owned() } else { format!("certs[{}]", at - 1) };
                vec![Problem::error(name.to_string(), path, message)]
            }
            other => vec![Problem::error(name.to_string(), "", format!("{other:?}"))],
        })?;
        let shown = written.kind == config::SslType::Server && written.status != 0;
        if !shown {
            self.remove_ssl(name);
            return Ok(Vec::new());
        }
        if written.client.is_some() {
            // Served without the check it asks for, it would let everybody in.
            let message = "client certificates cannot be asked for in this version";
            return Err(vec![Problem::error(name.to_string(), "client", message)]);
        }
        let mut problems = Vec::new();
        if written.ssl_protocols.is_some() {
            let message = "the node's TLS versions are used for every certificate in this version";
            problems.push(Problem::warning(name.to_string(), "ssl_protocols", message));
        }
        if pairs(&written).any(is_reference) {
            let message = "references to secrets are not resolved in this version";
            return Err(vec![Problem::error(name.to_string(), "cert", message)]);
        }
        let mut snis: Vec<Box<str>> = Vec::new();
        for sni in written.snis().iter() {
            if sni.starts_with('*') && sni.len() > 1 && !sni.starts_with("*.") {
                let message = format!("{sni} is not a name or a wildcard of one label, and is left out");
                problems.push(Problem::warning(name.to_string(), "snis", message));
            } else {
                snis.push(sni.to_ascii_lowercase().into());
            }
        }
        self.remove_ssl(name);
        let certificate = Arc::new(Certificate { id: Box::from(&*name.id), keys });
        for sni in &snis {
            self.sni_claims.entry(sni.clone()).or_default().insert(name.id.clone());
        }
        self.ssls.insert(name.id.clone(), SslHeld { certificate, snis });
        self.settle_snis(name);
        Ok(problems)
    }

    pub(super) fn remove_ssl(&mut self, name: &Name) {
        let Some(held) = self.ssls.get(&name.id) else { return };
        for sni in held.snis.clone() {
            if let Some(claims) = self.sni_claims.get_mut(&sni) {
                claims.remove(&name.id);
            }
        }
        self.settle_snis(name);
        self.ssls.remove(&name.id);
    }

    /// Gives each server name of an object to the last of those that claim it.
    fn settle_snis(&mut self, name: &Name) {
        let snis = self.ssls.get(&name.id).map(|held| held.snis.clone()).unwrap_or_default();
        for sni in snis {
            let winner = self.sni_claims.get(&sni).and_then(|claims| claims.last());
            match winner.and_then(|id| self.ssls.get(id)) {
                Some(held) => drop(self.certificates.insert(sni, held.certificate.clone())),
                None => {
                    self.sni_claims.remove(&sni);
                    self.certificates.remove(&sni);
                }
            }
        }
    }

    /// Warnings of names that a later object took.
    pub(super) fn sni_problems(&self, name: &Name) -> Vec<Problem> {
        let Some(held) = self.ssls.get(&name.id) else { return Vec::new() };
        let taken = held.snis.iter().filter_map(|sni| {
            let last = self.sni_claims.get(sni)?.last().filter(|last| **last != name.id)?;
            let message = format!("the certificate for {sni} is that of ssls/{last}");
            Some(Problem::warning(name.to_string(), "snis", message))
        });
        taken.collect()
    }
}
