//! `yumen lint`: what a file says that is probably not meant.

use std::path::Path;
use std::process::ExitCode;

use x509_parser::pem::Pem;
use x509_parser::public_key::PublicKey;
use yumen_snapshot::{CertificateFacts, KeyFacts, Lint, lint};

use crate::{check, offline};

/// Looks `file` over and prints every finding, those of `yumen check` first.
pub(crate) fn run(file: &Path, strict: bool, json: bool) -> anyhow::Result<ExitCode> {
    let loaded = offline::load(file)?;
    let mut problems = loaded.problems;
    problems.extend(lint(&Lint {
        resources: &loaded.resources,
        snapshot: &loaded.snapshot,
        now_unix_s: yumen_proxy::clock::exact().unix_s(),
        certificate: &certificate,
        strict,
    }));
    check::report(&problems, loaded.resources.len(), json)
}

/// Reads the first certificate of a PEM text.
pub(crate) fn certificate(text: &str) -> Result<CertificateFacts, String> {
    let first = Pem::iter_from_buffer(text.as_bytes()).next().ok_or("there is no PEM block")?;
    let block = first.map_err(|error| error.to_string())?;
    let certificate = block.parse_x509().map_err(|error| error.to_string())?;
    let key = match certificate.public_key().parsed() {
        Ok(PublicKey::RSA(key)) => KeyFacts::Rsa { bits: key.key_size() },
        _ => KeyFacts::Other,
    };
    let validity = certificate.validity();
    Ok(CertificateFacts {
        not_before_unix_s: validity.not_before.timestamp(),
        not_after_unix_s: validity.not_after.timestamp(),
        key,
    })
}
