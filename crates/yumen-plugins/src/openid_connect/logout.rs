//! Logout: the session ends here and at the provider (OpenID Connect RP-Initiated Logout).

use yumen_plugin::{Exchange, LocalResponse, Method, Step};

use super::client_auth::EndpointCall;
use super::form::FormBody;
use super::provider::OidcProvider;
use super::{OpenidConnect, session_failure};
use crate::session::{LoginSession, OpenedLogin, SessionStore};

impl OpenidConnect {
    /// The answer to a request to the logout path.
    pub(super) async fn logout<'a>(
        &'a self,
        provider: &'a OidcProvider,
        sessions: &'a SessionStore,
        ex: &'a mut Exchange<'_>,
    ) -> Step<'a> {
        let opened = match self.load_session(provider, sessions, ex, sessions.find(ex)).await {
            Ok(opened) => opened,
            Err(response) => return Step::Respond(response),
        };
        let cookies = sessions.clear(ex.host, self.cookie_request(ex), opened.as_deref()).await;
        let cookies = match cookies {
            Ok(cookies) => cookies,
            Err(fault) => return Step::Respond(session_failure(fault)),
        };
        let session = opened.as_deref().map(|opened: &OpenedLogin| &opened.session);
        if let Some(session) = session.filter(|_| self.logout.revoke_tokens_on_logout) {
            self.revoke(provider, ex, session).await;
        }
        let mut response = self.after_logout(provider, ex, session);
        for line in cookies.into_iter().chain(self.ended_login_removal(sessions, ex)) {
            response.fields_mut().add("Set-Cookie", line.as_bytes());
        }
        Step::Respond(response.field("Cache-Control", "no-cache, no-store, max-age=0"))
    }

    fn after_logout(
        &self,
        provider: &OidcProvider,
        ex: &Exchange<'_>,
        session: Option<&LoginSession>,
    ) -> LocalResponse {
        let landing = self.logout.post_logout_redirect_uri.as_deref().map(|url| match url.starts_with('/') {
            true => self.own_url(ex, url),
            false => url.to_owned(),
        });
        let location = match &provider.metadata.end_session_endpoint {
            Some(endpoint) => {
                let mut form = FormBody::default();
                if let Some(id_token) = session.and_then(|session| session.id_token.as_deref()) {
                    form.set("id_token_hint", id_token);
                } else {
                    // Without a hint, the provider needs the client to accept the landing page.
                    form.set("client_id", &self.client.id);
                }
                if let Some(landing) = &landing {
                    form.set("post_logout_redirect_uri", landing);
                }
                Some(form.url(endpoint))
            }
            None => landing,
        };
        match location {
            Some(location) => LocalResponse::status(302).field("Location", location),
            None => LocalResponse::status(200)
                .field("Content-Type", "text/html")
                .body("<html><body>Logged Out</body></html>"),
        }
    }

    /// Revokes the tokens (RFC 7009). The logout does not depend on the result.
    async fn revoke(&self, provider: &OidcProvider, ex: &Exchange<'_>, session: &LoginSession) {
        let Some(endpoint) = &provider.revocation else { return };
        let tokens = [("refresh_token", &session.refresh_token), ("access_token", &session.access_token)];
        for (hint, token) in tokens {
            let Some(token) = token else { continue };
            let mut form = FormBody::default();
            form.set("token", token);
            form.set("token_type_hint", hint);
            let mut spec = endpoint.target.request(Method::Post);
            let now_s = ex.now.unix_s();
            let mut call = EndpointCall { host: ex.host, endpoint: &endpoint.url, now_s, spec: &mut spec };
            self.client.authenticate(self.token_method, &mut call, &mut form);
            form.write(&mut spec);
            if endpoint.target.send(ex.host, spec).await.is_err() {
                return;
            }
        }
    }
}
