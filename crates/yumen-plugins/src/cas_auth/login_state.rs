//! The cookie of a login in progress: the request that began it, signed.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use yumen_plugin::Exchange;

use crate::code_login::{is_local_target, return_target};

/// Time for a login in seconds.
const LOGIN_S: u64 = 600;

pub(super) struct LoginStateCookie;

impl LoginStateCookie {
    pub(super) const NAME: &'static str = "CAS_REQUEST_URI";

    /// The value for a login that begins with this request.
    pub(super) fn write(ex: &Exchange<'_>, secret: &str) -> String {
        let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(return_target(ex)), ex.now.unix_s() + LOGIN_S);
        let signature = hmac::sign(&key(secret), signed.as_bytes());
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    /// The request that began the login, if the cookie is genuine and not too old.
    pub(super) fn read(ex: &Exchange<'_>, secret: &str) -> Option<String> {
        let value = std::str::from_utf8(ex.request.cookie(Self::NAME.as_bytes())?).ok()?;
        let (signed, signature) = value.rsplit_once('.')?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        hmac::verify(&key(secret), signed.as_bytes(), &signature).ok()?;
        let (target, until_s) = signed.split_once('.')?;
        if until_s.parse::<u64>().ok()? < ex.now.unix_s() {
            return None;
        }
        let target = URL_SAFE_NO_PAD.decode(target).ok()?;
        String::from_utf8(target).ok().filter(|target| is_local_target(target.as_bytes()))
    }
}

fn key(secret: &str) -> hmac::Key {
    // A use of its own, so that no other signature with the secret counts as a login.
    hmac::Key::new(hmac::HMAC_SHA256, format!("cas request uri {secret}").as_bytes())
}
