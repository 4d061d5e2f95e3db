//! Logins by an authorization code, which the plugin exchanges for the user: sealed cookies, and the steps that the
//! plugins have in common.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use yumen_plugin::{DryRunResult, Exchange, ExternalUser, LocalResponse, ResponseHead, Step};

use crate::cookie_privacy::forbid_sharing;
use crate::openid_connect::remove_consumer_fields;
use crate::query::{QueryArgument, argument};
use crate::session::{CookiePurpose, LoginCookieAttributes, LoginSealKeys};

/// Field with the user for the upstream.
const USER_FIELD: &str = "X-Userinfo";
/// Longest path and query that a login remembers.
const TARGET_BYTES_MAX: usize = 2048;
/// Longest cookie that all browsers keep (RFC 6265 §6.1).
const COOKIE_BYTES_MAX: usize = 4096;

/// A cookie whose content is sealed and has an end.
pub(crate) struct SealedCookie {
    keys: LoginSealKeys,
    purpose: CookiePurpose,
    name: &'static str,
    attributes: LoginCookieAttributes,
}

#[derive(Serialize, Deserialize)]
struct SealedContent<T> {
    until_s: u64,
    content: T,
}

/// The secret of one application, from which the key of its cookies derives. Lengths separate the parts.
pub(crate) fn application_secret(secret: &str, owner: [&str; 2]) -> String {
    let [application, endpoint] = owner;
    format!("{}:{application}{}:{endpoint}{secret}", application.len(), endpoint.len())
}

impl SealedCookie {
    /// A cookie whose first secret seals and whose secrets all open.
    pub(crate) fn new<'s>(
        name: &'static str,
        purpose: CookiePurpose,
        secrets: impl IntoIterator<Item = &'s str>,
    ) -> SealedCookie {
        let attributes = LoginCookieAttributes {
            path: "/".to_owned(),
            domain: None,
            secure: None,
            is_http_only: true,
            same_site: "Lax",
        };
        SealedCookie { keys: LoginSealKeys::new(secrets), purpose, name, attributes }
    }

    /// The content, if the cookie is genuine and has not ended.
    pub(crate) fn read<T: DeserializeOwned>(&self, ex: &Exchange<'_>) -> Option<T> {
        let value = ex.request.cookie(self.name.as_bytes())?;
        let (text, _) = self.keys.open(self.purpose, self.name, value).ok()?;
        let sealed: SealedContent<T> = serde_json::from_slice(&text).ok()?;
        (ex.now.unix_s() < sealed.until_s).then_some(sealed.content)
    }

    /// The value of `Set-Cookie` for a content; `None` if browsers would refuse the cookie for its length.
    pub(crate) fn write<T: Serialize>(
        &self,
        ex: &Exchange<'_>,
        content: &T,
        lifetime_s: u64,
    ) -> Option<String> {
        let sealed = SealedContent { until_s: ex.now.unix_s().saturating_add(lifetime_s), content };
        let text = serde_json::to_vec(&sealed).ok()?;
        let mut salt = [0; 16];
        ex.host.fill_random(&mut salt);
        let value = self.keys.seal(self.purpose, self.name, &text, salt)?;
        let line = self.attributes.line(self.name, &value, Some(lifetime_s), is_https(ex));
        (line.len() <= COOKIE_BYTES_MAX).then_some(line)
    }

    /// The value of `Set-Cookie` that removes the cookie.
    pub(crate) fn clear(&self, ex: &Exchange<'_>) -> String {
        self.attributes.line(self.name, "", Some(0), is_https(ex))
    }
}

fn is_https(ex: &Exchange<'_>) -> bool {
    ex.client.scheme() == "https"
}

/// The path and query to which a login returns; `/` if a browser would take them as another host.
pub(crate) fn return_target(ex: &Exchange<'_>) -> String {
    let target = ex.request.request_uri();
    let target: &[u8] = if is_local_target(&target) { &target } else { b"/" };
    String::from_utf8_lossy(target).into_owned()
}

/// Whether a browser takes the text as a path of this host: `//host` and `/\host` name other hosts.
pub(crate) fn is_local_target(target: &[u8]) -> bool {
    target.starts_with(b"/")
        && !matches!(target.get(1), Some(b'/' | b'\\'))
        && target.len() <= TARGET_BYTES_MAX
        && target.iter().all(u8::is_ascii_graphic)
}

/// The reason why a provider named no user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CodeLoginFault {
    /// The provider refused the code.
    Refused,
    /// The provider did not respond as expected.
    Unavailable,
}

/// Settings that plugins of this kind have in common.
pub(crate) struct CodeLogin {
    pub(crate) cookie: SealedCookie,
    /// Field with the code.
    pub(crate) code_header: String,
    /// Query argument with the code.
    pub(crate) code_query: String,
    /// The page that begins a login.
    pub(crate) redirect_uri: String,
    pub(crate) sets_user_field: bool,
    /// Lifetime of the session in seconds.
    pub(crate) lifetime_s: u64,
}

/// The first decision about a request.
pub(crate) enum CodeLoginStep {
    /// The session has the user.
    Known(Value),
    /// The code must be exchanged.
    Exchange(String),
    /// The user must log in.
    Respond(LocalResponse),
}

/// The cookie of a session that begins with this request.
struct NewSession(String);

impl CodeLogin {
    pub(crate) fn step(&self, ex: &mut Exchange<'_>) -> CodeLoginStep {
        // The upstream trusts the field, so that a client must not set it.
        ex.request.fields.remove_equivalent(USER_FIELD);
        remove_consumer_fields(ex);
        if let Some(user) = self.cookie.read::<Value>(ex) {
            return CodeLoginStep::Known(user);
        }
        let query = ex.request.query().unwrap_or_default();
        let code =
            match (ex.request.fields.get(&self.code_header), argument(query, self.code_query.as_bytes())) {
                (Some(code), _) => code.to_vec(),
                (None, QueryArgument::One(code)) => code.into_owned(),
                (None, _) => Vec::new(),
            };
        match String::from_utf8(code) {
            Ok(code) if !code.is_empty() => CodeLoginStep::Exchange(code),
            _ => CodeLoginStep::Respond(
                LocalResponse::status(302)
                    .field("Location", &self.redirect_uri)
                    .field("Cache-Control", "no-store"),
            ),
        }
    }

    /// Passes the user on to the upstream and to later plugins. `id` are the members that identify the user.
    pub(crate) fn admit(&self, ex: &mut Exchange<'_>, user: Value, id: &[&str]) {
        if self.sets_user_field {
            let text = STANDARD.encode(user.to_string());
            ex.request.fields.set_only(USER_FIELD, text.as_bytes());
        }
        let id = id.iter().find_map(|member| user.get(member)?.as_str()).unwrap_or_default();
        ex.external_user = Some(Box::new(ExternalUser { id: id.into(), claims: Arc::new(user) }));
    }

    /// The step that follows from the answer of the provider. A new session has its cookie in the response.
    pub(crate) fn finish<'a>(
        &self,
        ex: &mut Exchange<'_>,
        user: Result<Value, CodeLoginFault>,
        id: &[&str],
    ) -> Step<'a> {
        let user = match user {
            Ok(user) => user,
            Err(CodeLoginFault::Refused) => {
                return Step::Respond(LocalResponse::message(401, "Invalid authorization code"));
            }
            Err(CodeLoginFault::Unavailable) => {
                return Step::Respond(LocalResponse::message(503, "The login service is not available"));
            }
        };
        let Some(cookie) = self.cookie.write(ex, &user, self.lifetime_s) else {
            return Step::Respond(LocalResponse::message(503, "The user information exceeds a cookie"));
        };
        ex.leave(NewSession(cookie));
        self.admit(ex, user, id);
        Step::Continue
    }

    pub(crate) fn dry_run(&self, ex: &mut Exchange<'_>, id: &[&str], service: String) -> DryRunResult {
        match self.step(ex) {
            CodeLoginStep::Known(user) => {
                self.admit(ex, user, id);
                DryRunResult::Continue
            }
            CodeLoginStep::Exchange(_) => DryRunResult::Note(format!("depends on {service}").into()),
            CodeLoginStep::Respond(response) => DryRunResult::Respond(response),
        }
    }
}

/// Adds the cookie of a new session to the response, beside the cookies of the upstream.
pub(crate) fn add_cookie(ex: &Exchange<'_>, head: &mut ResponseHead) {
    if let Some(NewSession(cookie)) = ex.note::<NewSession>() {
        forbid_sharing(head);
        head.fields.add("Set-Cookie", cookie.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::is_local_target;

    #[test]
    fn targets_of_other_hosts_are_not_local() {
        fn check(target: &str, expected: bool) {
            assert_eq!(is_local_target(target.as_bytes()), expected, "{target:?}");
        }
        check("/a?u=//b", true);
        check("/", true);
        for target in ["", "a", "//evil.test", "/\\evil.test", "/\t/evil.test", "/a b", "http://evil.test/"] {
            check(target, false);
        }
        check(&format!("/{}", "a".repeat(2048)), false);
    }
}
