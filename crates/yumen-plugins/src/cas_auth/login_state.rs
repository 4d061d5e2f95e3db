//! The cookie of a login in progress: its state and the request that began it, signed.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use yumen_plugin::Exchange;

use crate::code_login::{LOGIN_S, is_local_target, new_state, return_target};

/// A login in progress.
pub(super) struct CasLogin {
    /// The state in the URL of the service: the server returns it with the ticket.
    pub(super) state: String,
    /// Path and query of the request that began the login.
    pub(super) target: String,
}

pub(super) struct LoginStateCookie;

impl LoginStateCookie {
    pub(super) const NAME: &'static str = "CAS_REQUEST_URI";

    /// A login that begins with this request. Tabs of a browser share the state, so that each of them may end its login.
    pub(super) fn begin(ex: &Exchange<'_>, secret: &str) -> CasLogin {
        let state = LoginStateCookie::read(ex, secret).map_or_else(|| new_state(ex), |login| login.state);
        CasLogin { state, target: return_target(ex) }
    }

    /// The value for a login.
    pub(super) fn write(login: &CasLogin, ex: &Exchange<'_>, secret: &str) -> String {
        let target = URL_SAFE_NO_PAD.encode(&login.target);
        let signed = format!("{target}.{}.{}", login.state, ex.now.unix_s() + LOGIN_S);
        let signature = hmac::sign(&key(secret), signed.as_bytes());
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    /// The login, if the cookie is genuine and not too old.
    pub(super) fn read(ex: &Exchange<'_>, secret: &str) -> Option<CasLogin> {
        let value = std::str::from_utf8(ex.request.cookie(Self::NAME.as_bytes())?).ok()?;
        let (signed, signature) = value.rsplit_once('.')?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        hmac::verify(&key(secret), signed.as_bytes(), &signature).ok()?;
        let (rest, until_s) = signed.rsplit_once('.')?;
        let (target, state) = rest.split_once('.')?;
        if until_s.parse::<u64>().ok()? < ex.now.unix_s() {
            return None;
        }
        let target = String::from_utf8(URL_SAFE_NO_PAD.decode(target).ok()?).ok()?;
        let is_local = is_local_target(target.as_bytes());
        is_local.then(|| CasLogin { state: state.to_owned(), target })
    }
}

fn key(secret: &str) -> hmac::Key {
    // A use of its own, so that no other signature with the secret counts as a login.
    hmac::Key::new(hmac::HMAC_SHA256, format!("cas request uri {secret}").as_bytes())
}
