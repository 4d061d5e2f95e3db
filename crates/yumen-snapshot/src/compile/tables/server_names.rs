//! Certificates by server name, and the objects that claim each name.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use foldhash::fast::RandomState;
use yumen_base::Problem;

use super::Table;
use crate::certificates::{Certificates, CompiledCertificate, find_certificate};
use crate::compile::names::ObjectName;

struct StagedSsl {
    certificate: Arc<CompiledCertificate>,
    /// The names it claims, in lower case.
    server_names: Vec<Box<str>>,
}

/// Assigns each server name to one of the certificates that claim it.
pub(crate) struct ServerNames {
    objects: Table<StagedSsl>,
    claims: HashMap<Box<str>, BTreeSet<Arc<str>>, RandomState>,
    /// Names with more than one claim.
    contested: BTreeSet<Box<str>>,
    /// The number of certificates that request one of the client.
    client_policies: usize,
    /// The certificate of each name, without those that the node fetched.
    assigned: Certificates,
    /// Ids of the objects with certificates that the node fetched by ACME.
    fetched: Arc<[Box<str>]>,
}

impl ServerNames {
    pub(crate) fn new(fetched: Arc<[Box<str>]>) -> ServerNames {
        ServerNames {
            objects: Table::default(),
            claims: HashMap::default(),
            contested: BTreeSet::new(),
            client_policies: 0,
            assigned: Certificates::default(),
            fetched,
        }
    }

    /// Whether no object has a name.
    pub(crate) fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Whether an object has a key to present.
    pub(crate) fn has_key(&self, id: &str) -> bool {
        self.objects.get(id).is_some_and(|object| !object.certificate.keys.is_empty())
    }

    /// Whether any certificate requests one of the client.
    pub(crate) fn requests_client_certificates(&self) -> bool {
        self.client_policies > 0
    }

    /// Adds or replaces the certificate of an object, and claims its names.
    pub(crate) fn insert(
        &mut self,
        id: &Arc<str>,
        certificate: Arc<CompiledCertificate>,
        names: Vec<Box<str>>,
    ) {
        // The names of the previous version are released first; the new one may claim others.
        self.remove(id);
        for name in &names {
            let claims = self.claims.entry(name.clone()).or_default();
            claims.insert(id.clone());
            if claims.len() > 1 {
                self.contested.insert(name.clone());
            }
        }
        self.client_policies += usize::from(certificate.client.is_some());
        let staged = StagedSsl { certificate, server_names: names.clone() };
        self.objects.insert(id.clone(), staged);
        names.into_iter().for_each(|name| self.assign(name));
    }

    /// Removes the certificate of an object; each of its names passes to the next claimant.
    pub(crate) fn remove(&mut self, id: &str) {
        let Some(removed) = self.objects.remove(id) else { return };
        self.client_policies -= usize::from(removed.certificate.client.is_some());
        for name in removed.server_names {
            if let Some(claims) = self.claims.get_mut(&name) {
                claims.remove(id);
                if claims.len() < 2 {
                    self.contested.remove(&name);
                }
            }
            self.assign(name);
        }
    }

    /// Gives a name to its last claimant. A fetched certificate is presented by [`ServerNames::presented`] instead.
    fn assign(&mut self, name: Box<str>) {
        let claims = self.claims.get(&name);
        // The last id wins, whatever the order of arrival, so that all nodes present the same certificate.
        let winner = claims.and_then(|claims| claims.iter().rfind(|id| !self.is_fetched(id)));
        match winner.and_then(|id| self.objects.get(id)) {
            Some(object) => drop(self.assigned.insert(name, object.certificate.clone())),
            None => {
                // The map must not grow with names that came and went.
                if claims.is_some_and(BTreeSet::is_empty) {
                    self.claims.remove(&name);
                }
                self.assigned.remove(&name);
            }
        }
    }

    fn is_fetched(&self, id: &str) -> bool {
        self.fetched.iter().any(|fetched| **fetched == *id)
    }

    /// The certificates by name, for a snapshot.
    ///
    /// A fetched certificate is presented for its names whatever else claims them, but under the handshake rules of the
    /// object that claims them: a new certificate must not admit clients that an object excludes.
    pub(crate) fn presented(&self) -> Certificates {
        // The clone shares its structure; only the fetched names are inserted.
        let mut presented = self.assigned.clone();
        for object in self.fetched.iter().filter_map(|id| self.objects.get(&**id)) {
            for name in &object.server_names {
                // The rules of the object that would match without the fetched certificate (decision 23).
                let certificate = match find_certificate(&self.assigned, name) {
                    Some((_, ruling)) => Arc::new(object.certificate.under_rules_of(ruling)),
                    None => object.certificate.clone(),
                };
                presented.insert(name.clone(), certificate);
            }
        }
        presented
    }

    /// Ids of the objects with a contested name.
    pub(crate) fn contested_objects(&self) -> impl Iterator<Item = &Arc<str>> {
        self.contested.iter().filter_map(|name| self.claims.get(name)).flatten()
    }

    /// Warnings about names for which the certificate of another object is presented.
    pub(crate) fn problems_of(&self, name: &ObjectName) -> Vec<Problem> {
        let Some(object) = self.objects.get(&name.id) else { return Vec::new() };
        let taken = object.server_names.iter().filter_map(|sni| {
            let claims = self.claims.get(sni)?;
            let fetched = self.fetched.iter().rev().find_map(|id| claims.get(&**id));
            let presented = fetched.or_else(|| claims.last()).filter(|id| **id != name.id)?;
            let ruling = self.assigned.get(sni);
            let drops_client_policy =
                object.certificate.client.is_some() && ruling.is_some_and(|ruling| ruling.client.is_none());
            let consequence = match drops_client_policy {
                true => ": clients are not asked for certificates, as this object wants",
                false => "",
            };
            let message = format!("the certificate for {sni} is that of ssls/{presented}{consequence}");
            Some(Problem::warning(name.to_string(), "snis", message))
        });
        taken.collect()
    }
}

#[cfg(test)]
mod tests;
