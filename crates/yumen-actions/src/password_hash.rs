//! Hashed passwords in the forms of htpasswd and crypt, and their verification.

mod des_crypt;
mod md5_crypt;
mod sha_text;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;

/// Longest password that is verified, in bytes.
const PASSWORD_BYTES_MAX: usize = 1024;

/// The highest cost of bcrypt: 2^16 rounds take seconds.
const BCRYPT_COST_MAX: u32 = 16;

/// A hashed password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PasswordHash {
    form: HashForm,
    text: Box<str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HashForm {
    Bcrypt,
    /// `$apr1$` and `$1$`, by the magic.
    Md5(&'static str),
    Sha256,
    Sha512,
    /// `{SHA}`.
    Sha1,
    /// `{SSHA}`: digest and salt.
    SaltedSha1,
    /// The traditional form: 13 characters.
    Des,
}

impl PasswordHash {
    /// Parses a hash.
    ///
    /// # Errors
    /// The text has no supported form; a plain password is none.
    pub(crate) fn parse(text: &str) -> Result<PasswordHash, String> {
        let form = form_of(text)?;
        let is_whole = match form {
            HashForm::Bcrypt => text.len() == 60 && cost(text).is_some_and(|cost| cost <= BCRYPT_COST_MAX),
            HashForm::Md5(magic) => {
                text[magic.len()..].split_once('$').is_some_and(|(_, sum)| sum.len() == 22)
            }
            HashForm::Sha256 | HashForm::Sha512 => sha_text::is_whole(text),
            HashForm::Sha1 => decoded(text, "{SHA}").is_some_and(|sum| sum.len() == 20),
            HashForm::SaltedSha1 => decoded(text, "{SSHA}").is_some_and(|sum| sum.len() > 20),
            HashForm::Des => true,
        };
        match is_whole {
            true => Ok(PasswordHash { form, text: text.into() }),
            false => Err("the hash is incomplete or takes too many rounds".to_owned()),
        }
    }

    /// The hash as text.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The work of a verification as bytes of a computation, which bounds the queue of other threads: a queue of 256 MiB
    /// holds 64 hashes of bcrypt with cost 10, which take seconds.
    pub(crate) fn weight(&self) -> usize {
        match self.form {
            HashForm::Bcrypt => 4096 << cost(&self.text).unwrap_or(BCRYPT_COST_MAX),
            HashForm::Sha256 | HashForm::Sha512 => sha_text::rounds(&self.text) * 100,
            HashForm::Md5(_) => 32 * 1024,
            HashForm::Sha1 | HashForm::SaltedSha1 | HashForm::Des => 0,
        }
    }

    /// Whether a password belongs to the hash.
    pub(crate) fn verify(&self, password: &[u8]) -> bool {
        // A null byte ends the password for bcrypt and crypt, so others would match too.
        if password.len() > PASSWORD_BYTES_MAX || password.contains(&0) {
            return false;
        }
        let text = &*self.text;
        match self.form {
            // Programs truncate after 72 bytes, as htpasswd did for the hash.
            HashForm::Bcrypt => bcrypt::verify(&password[..password.len().min(72)], text).unwrap_or(false),
            HashForm::Md5(magic) => {
                let salt = text[magic.len()..].split('$').next().unwrap_or_default();
                is_same(md5_crypt::hash(password, salt.as_bytes(), magic).as_bytes(), text.as_bytes())
            }
            HashForm::Sha256 | HashForm::Sha512 => {
                let computed = sha_text::hash(password, text);
                computed.is_some_and(|computed| is_same(computed.as_bytes(), text.as_bytes()))
            }
            HashForm::Sha1 => decoded(text, "{SHA}").is_some_and(|sum| is_same(&sum, &sha1(password, &[]))),
            HashForm::SaltedSha1 => decoded(text, "{SSHA}").is_some_and(|sum| {
                sum.split_at_checked(20).is_some_and(|(sum, salt)| is_same(sum, &sha1(password, salt)))
            }),
            HashForm::Des => {
                let salt = [text.as_bytes()[0], text.as_bytes()[1]];
                is_same(des_crypt::hash(password, salt).as_bytes(), text.as_bytes())
            }
        }
    }
}

fn form_of(text: &str) -> Result<HashForm, String> {
    let prefixes = [
        ("$2y$", HashForm::Bcrypt),
        ("$2a$", HashForm::Bcrypt),
        ("$2b$", HashForm::Bcrypt),
        ("$apr1$", HashForm::Md5("$apr1$")),
        ("$1$", HashForm::Md5("$1$")),
        ("$5$", HashForm::Sha256),
        ("$6$", HashForm::Sha512),
        ("{SHA}", HashForm::Sha1),
        ("{SSHA}", HashForm::SaltedSha1),
    ];
    if let Some((_, form)) = prefixes.into_iter().find(|(prefix, _)| text.starts_with(prefix)) {
        return Ok(form);
    }
    let is_crypt = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'/');
    if text.len() == 13 && text.bytes().all(is_crypt) {
        return Ok(HashForm::Des);
    }
    if text.starts_with("{PLAIN}") || !text.starts_with(['$', '{']) {
        return Err("the password is not hashed".to_owned());
    }
    Err("the form of the hash is not supported".to_owned())
}

/// The cost of a bcrypt hash.
fn cost(text: &str) -> Option<u32> {
    text.get(4..6)?.parse().ok().filter(|cost| (4..=31).contains(cost))
}

fn decoded(text: &str, prefix: &str) -> Option<Vec<u8>> {
    BASE64_STANDARD.decode(text.strip_prefix(prefix)?).ok()
}

fn sha1(password: &[u8], salt: &[u8]) -> Vec<u8> {
    digest(&SHA1_FOR_LEGACY_USE_ONLY, &[password, salt].concat()).as_ref().to_vec()
}

fn is_same(a: &[u8], b: &[u8]) -> bool {
    verify_slices_are_equal(a, b).is_ok()
}

#[cfg(test)]
mod tests;
