//! Basic authentication (RFC 7617) with the hashed passwords of a htpasswd file.
//!
//! A slow hash is computed on an offload thread. Each worker remembers pairs of hash and password that belong together, so
//! a client pays for its hash once.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use yumen_config::InvalidSettings;
use yumen_config::resource::BasicAuthFileSpec;
use yumen_plugin::plugin::LocalFuture;
use yumen_plugin::{Computation, Exchange, LocalResponse, OffloadRefused, compute};

use crate::ActionUpstreams;
use crate::password_hash::PasswordHash;

/// Pairs in one half of the memory of a worker.
const PAIRS_MAX: usize = 2048;

/// The path of the action, for problems.
const PATH: &str = "actions.access.basic_auth_file";

/// Names with hashed passwords.
#[derive(Debug)]
pub(crate) struct BasicAuthFile {
    users: HashMap<Box<[u8]>, Arc<PasswordHash>>,
    /// Verified for unknown names, so that the time of a refusal does not reveal the names.
    decoy: Arc<PasswordHash>,
    challenge: Box<str>,
}

/// The result of checking credentials.
pub(crate) enum CredentialCheck {
    Ready(Result<bool, OffloadRefused>),
    Pending(LocalFuture<'static, Result<bool, OffloadRefused>>),
}

impl BasicAuthFile {
    /// Compiles the names. Entries that are not valid are reported, since only their owner is refused.
    ///
    /// # Errors
    /// No entry is valid.
    pub(crate) fn build(
        written: &BasicAuthFileSpec,
        upstreams: &dyn ActionUpstreams,
    ) -> Result<BasicAuthFile, InvalidSettings> {
        let mut users = HashMap::new();
        let mut refused = Vec::new();
        let mut add = |at: String, name: &str, hash: &str| match PasswordHash::parse(hash) {
            // The first entry of a name holds, as in NGINX.
            Ok(hash) => drop(users.entry(Box::from(name.as_bytes())).or_insert_with(|| Arc::new(hash))),
            Err(reason) => refused.push(format!("{at}: {reason}")),
        };
        for (at, line) in written.file.iter().flat_map(|file| file.lines()).enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            // A comment may follow the hash.
            match line.split_once(':') {
                Some((name, rest)) => {
                    add(format!("line {}", at + 1), name, rest.split(':').next().unwrap_or_default());
                }
                None => add(format!("line {}", at + 1), line, ""),
            }
        }
        for (name, hash) in written.users.iter().flatten() {
            add(format!("user {name}"), name, hash.trim());
        }
        let remedy = "write a line `name:hash` per user, with a hash of `htpasswd -B`";
        let Some(decoy) = users.values().next().cloned() else {
            let message = format!("no entry is valid: {}", refused.join("; "));
            return Err(InvalidSettings::at("access.basic_auth_file", message).hint(remedy));
        };
        if !refused.is_empty() {
            upstreams.warn(PATH, format!("users who cannot log in: {}", refused.join("; ")), remedy);
        }
        let challenge = format!("Basic realm=\"{}\"", written.realm).into();
        Ok(BasicAuthFile { users, decoy, challenge })
    }

    /// The refusal of a request.
    pub(crate) fn refusal(&self) -> LocalResponse {
        LocalResponse::message(401, "authentication required").field("WWW-Authenticate", &self.challenge)
    }

    /// Whether the credentials of a request are those of a user.
    pub(crate) fn check(&self, ex: &Exchange<'_>) -> CredentialCheck {
        let Some(pair) = ex.request.fields.get("Authorization").and_then(credentials) else {
            return CredentialCheck::Ready(Ok(false));
        };
        // A name has no colon, a password may have some (RFC 7617 §2).
        let Some(colon) = pair.iter().position(|byte| *byte == b':') else {
            return CredentialCheck::Ready(Ok(false));
        };
        let known = self.users.get(&pair[..colon]);
        let hash = known.unwrap_or(&self.decoy).clone();
        let is_known = known.is_some();
        let password = pair[colon + 1..].to_vec();
        let tag = tag_of(&hash, &password);
        if is_known && is_remembered(tag) {
            return CredentialCheck::Ready(Ok(true));
        }
        match compute(ex.host, hash.weight(), move || hash.verify(&password)) {
            Computation::Ready(result) => CredentialCheck::Ready(remembering(result, tag, is_known)),
            Computation::Pending(result) => CredentialCheck::Pending(Box::pin(async move {
                // Polled on the thread of the worker, whose memory it is.
                remembering(result.await, tag, is_known)
            })),
        }
    }
}

/// The name and password of an `Authorization` field, decoded.
fn credentials(field: &[u8]) -> Option<Vec<u8>> {
    // As NGINX decodes: padding is optional.
    const TOLERANT: GeneralPurpose = GeneralPurpose::new(
        &STANDARD,
        GeneralPurposeConfig::new()
            .with_decode_allow_trailing_bits(true)
            .with_decode_padding_mode(DecodePaddingMode::Indifferent),
    );
    let (scheme, token) = field.split_at_checked(6)?;
    // The scheme is case-insensitive (RFC 9110 §11.1).
    scheme.eq_ignore_ascii_case(b"basic ").then(|| TOLERANT.decode(token.trim_ascii()).ok())?
}

fn remembering(
    result: Result<bool, OffloadRefused>,
    tag: PairTag,
    is_known: bool,
) -> Result<bool, OffloadRefused> {
    let is_admitted = result? && is_known;
    if is_admitted {
        VERIFIED.with_borrow_mut(|pairs| pairs.remember(tag));
    }
    Ok(is_admitted)
}

/// A keyed digest of a hash and the password that belongs to it.
type PairTag = [u8; 32];

fn tag_of(hash: &PasswordHash, password: &[u8]) -> PairTag {
    static KEY: OnceLock<hmac::Key> = OnceLock::new();
    let key = KEY.get_or_init(|| {
        let mut secret = [0; 32];
        // Without randomness the tags are guessable, which needs the memory of the process to matter.
        let _ = aws_lc_rs::rand::fill(&mut secret);
        hmac::Key::new(hmac::HMAC_SHA256, &secret)
    });
    let mut context = hmac::Context::with_key(key);
    context.update(hash.text().as_bytes());
    context.update(&[0]);
    context.update(password);
    let mut tag = PairTag::default();
    tag.copy_from_slice(context.sign().as_ref());
    tag
}

/// Verified pairs in two halves: a full young half replaces the old one, so the memory is bounded and pairs in use stay.
#[derive(Default)]
struct VerifiedPairs {
    young: HashSet<PairTag>,
    old: HashSet<PairTag>,
}

thread_local! {
    static VERIFIED: RefCell<VerifiedPairs> = RefCell::default();
}

fn is_remembered(tag: PairTag) -> bool {
    VERIFIED.with_borrow_mut(|pairs| {
        let is_old = !pairs.young.contains(&tag) && pairs.old.remove(&tag);
        if is_old {
            pairs.remember(tag);
        }
        pairs.young.contains(&tag)
    })
}

impl VerifiedPairs {
    fn remember(&mut self, tag: PairTag) {
        if self.young.len() >= PAIRS_MAX {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(tag);
    }
}

#[cfg(test)]
mod tests;
