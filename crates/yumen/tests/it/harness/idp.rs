//! An identity provider: discovery, keys that rotate, codes, refresh tokens, introspection, and a log of all calls.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, MutexGuard};

use aws_lc_rs::digest;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::upstream::{Request, respond};
use super::{Gateway, Reply, Upstream};

/// A provider that listens; ends on drop.
pub(crate) struct Idp {
    upstream: Upstream,
    state: Arc<Mutex<IdpState>>,
}

/// Parameters of a form or query.
pub(crate) type Parameters = BTreeMap<String, String>;

#[derive(Default)]
struct IdpState {
    issuer: String,
    keys: Vec<(String, Arc<EcdsaKeyPair>)>,
    /// Parameters of the authorization request by code.
    codes: HashMap<String, Parameters>,
    pushed: HashMap<String, Parameters>,
    refresh_tokens: HashSet<String>,
    /// Calls by path, with the field `Authorization` as the parameter `authorization`.
    calls: Vec<(String, Parameters)>,
    /// Paths that answer with a failure, and its status.
    failing: HashMap<String, u16>,
    /// Seconds of life of access tokens.
    expires_in_s: u64,
    /// Further claims of ID tokens and of userinfo.
    claims: Value,
    /// Results of introspection by token.
    introspected: HashMap<String, Value>,
    count: u64,
}

impl Idp {
    pub(crate) fn start() -> Idp {
        let state = Arc::<Mutex<IdpState>>::default();
        let served = state.clone();
        let upstream = Upstream::start(move |request, stream| answer(&served, request, stream));
        let idp = Idp { upstream, state };
        {
            let mut state = idp.state();
            state.issuer = format!("http://{}", idp.upstream.address);
            state.expires_in_s = 300;
            state.claims = json!({});
        }
        idp.rotate(false);
        idp
    }

    fn state(&self) -> MutexGuard<'_, IdpState> {
        self.state.lock().unwrap()
    }

    pub(crate) fn issuer(&self) -> String {
        self.state().issuer.clone()
    }

    pub(crate) fn discovery(&self) -> String {
        format!("{}/.well-known/openid-configuration", self.issuer())
    }

    /// Signs with a new key from now on; the former ones are published as well, or no more.
    pub(crate) fn rotate(&self, keeps_former: bool) {
        let mut state = self.state();
        if !keeps_former {
            state.keys.clear();
        }
        let kid = state.next("k");
        state.keys.push((kid, Arc::new(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap())));
    }

    /// Makes the endpoint at `path` answer 503, or work again.
    pub(crate) fn set_broken(&self, path: &str, is_broken: bool) {
        self.set_failing(path, is_broken.then_some(503));
    }

    /// Makes the endpoint at `path` answer with this status, or work again.
    pub(crate) fn set_failing(&self, path: &str, status: Option<u16>) {
        let mut state = self.state();
        match status {
            Some(status) => state.failing.insert(path.to_owned(), status),
            None => state.failing.remove(path),
        };
    }

    pub(crate) fn set_lifetime(&self, expires_in_s: u64) {
        self.state().expires_in_s = expires_in_s;
    }

    /// Sets further claims of users.
    pub(crate) fn set_claims(&self, claims: Value) {
        self.state().claims = claims;
    }

    pub(crate) fn set_introspection(&self, token: &str, result: Value) {
        self.state().introspected.insert(token.to_owned(), result);
    }

    /// A signed token with these claims beside the standard ones; null removes one.
    pub(crate) fn token(&self, changes: &Value) -> String {
        self.state().token("me", changes)
    }

    /// The parameters of all calls of an endpoint.
    pub(crate) fn calls(&self, path: &str) -> Vec<Parameters> {
        let state = self.state();
        state.calls.iter().filter(|(one, _)| one == path).map(|(_, call)| call.clone()).collect()
    }

    /// The user logs in: the URL of the gateway to which the provider sends the browser.
    pub(crate) fn log_in(&self, location: &str) -> String {
        let mut request = parameters(location.split_once('?').expect("a query").1);
        let mut state = self.state();
        assert!(location.starts_with(&format!("{}/authorize?", state.issuer)), "{location}");
        if let Some(uri) = request.get("request_uri") {
            request = state.pushed.remove(uri).expect("a pushed request");
        }
        let code = state.next("code");
        let back = format!(
            "{}?code={code}&state={}&iss={}",
            request["redirect_uri"], request["state"], state.issuer
        );
        state.codes.insert(code, request);
        back
    }
}

impl IdpState {
    fn next(&mut self, prefix: &str) -> String {
        self.count += 1;
        format!("{prefix}{}", self.count)
    }

    fn token(&self, audience: &str, changes: &Value) -> String {
        let now_s = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        let mut claims = json!({
            "iss": self.issuer, "sub": "alice", "aud": audience, "iat": now_s, "exp": now_s + 300, "scope": "read",
        });
        for (name, value) in changes.as_object().expect("an object") {
            claims[name] = value.clone();
        }
        claims.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        let (kid, key) = self.keys.last().expect("a key");
        let encode = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", encode(json!({"alg": "ES256", "kid": kid})), encode(claims));
        let signature = key.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    fn document(&self) -> Value {
        let at = |path: &str| format!("{}{path}", self.issuer);
        json!({
            "issuer": self.issuer, "authorization_endpoint": at("/authorize"), "token_endpoint": at("/token"),
            "userinfo_endpoint": at("/userinfo"), "introspection_endpoint": at("/introspect"),
            "end_session_endpoint": at("/end"), "revocation_endpoint": at("/revoke"), "jwks_uri": at("/jwks"),
            "pushed_authorization_request_endpoint": at("/par"),
            "authorization_response_iss_parameter_supported": true,
        })
    }

    fn key_set(&self) -> Value {
        let jwk = |(kid, key): &(String, Arc<EcdsaKeyPair>)| {
            let point = key.public_key().as_ref();
            let (x, y) = point[1..].split_at(32);
            let (x, y) = (URL_SAFE_NO_PAD.encode(x), URL_SAFE_NO_PAD.encode(y));
            json!({"kty": "EC", "crv": "P-256", "kid": kid, "use": "sig", "x": x, "y": y})
        };
        json!({ "keys": self.keys.iter().map(jwk).collect::<Vec<_>>() })
    }

    /// The response of the token endpoint.
    fn grant(&mut self, call: &Parameters) -> (u16, Value) {
        let refused = (400, json!({"error": "invalid_grant"}));
        let nonce = match call["grant_type"].as_str() {
            "authorization_code" => {
                // Codes are used once.
                let Some(request) = self.codes.remove(&call["code"]) else { return refused };
                if call["redirect_uri"] != request["redirect_uri"] {
                    return refused;
                }
                if let Some(challenge) = request.get("code_challenge") {
                    let verifier = call.get("code_verifier").map_or("", String::as_str);
                    let digest = digest::digest(&digest::SHA256, verifier.as_bytes());
                    if *challenge != URL_SAFE_NO_PAD.encode(digest) {
                        return refused;
                    }
                }
                request.get("nonce").cloned()
            }
            // Refresh tokens rotate, and one that is used twice is a theft.
            _ if !self.refresh_tokens.remove(&call["refresh_token"]) => return refused,
            _ => None,
        };
        let (access_token, refresh_token) = (self.next("at"), self.next("rt"));
        self.refresh_tokens.insert(refresh_token.clone());
        let mut claims = self.claims.clone();
        claims["nonce"] = nonce.into();
        let id_token = self.token("me", &claims);
        (
            200,
            json!({
                "access_token": access_token, "refresh_token": refresh_token, "id_token": id_token,
                "expires_in": self.expires_in_s, "token_type": "Bearer",
            }),
        )
    }
}

fn answer(state: &Mutex<IdpState>, request: &Request, stream: &mut TcpStream) -> bool {
    let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
    let mut call = parameters(query);
    call.extend(parameters(&String::from_utf8_lossy(&request.body)));
    if let Some(authorization) = request.field("authorization") {
        call.insert("authorization".to_owned(), authorization.to_owned());
    }
    let mut state = state.lock().unwrap();
    state.calls.push((path.to_owned(), call.clone()));
    let (status, body) = match path {
        path if state.failing.contains_key(path) => (state.failing[path], json!({})),
        "/.well-known/openid-configuration" => (200, state.document()),
        "/jwks" => (200, state.key_set()),
        "/token" => state.grant(&call),
        "/introspect" => {
            (200, state.introspected.get(&call["token"]).cloned().unwrap_or(json!({"active": false})))
        }
        "/userinfo" => {
            let mut claims = state.claims.clone();
            claims["sub"] = "alice".into();
            (200, claims)
        }
        "/par" => {
            let uri = state.next("urn:pushed:");
            state.pushed.insert(uri.clone(), call);
            (201, json!({"request_uri": uri, "expires_in": 60}))
        }
        "/revoke" => (200, json!({})),
        _ => (404, json!({})),
    };
    drop(state);
    respond(stream, status, "Content-Type: application/json\r\n", body.to_string().as_bytes())
}

/// The parameters of a form or query.
pub(crate) fn parameters(text: &str) -> Parameters {
    let decode = |text: &str| {
        let text = text.replace('+', " ");
        percent_encoding::percent_decode_str(&text).decode_utf8_lossy().into_owned()
    };
    let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (decode(name), decode(value))).collect()
}

/// A browser: it keeps cookies, and follows no redirect by itself.
#[derive(Clone, Default)]
pub(crate) struct Browser {
    pub(crate) cookies: BTreeMap<String, String>,
}

impl Browser {
    /// Requests a path of the gateway, or the URL of a redirect to it.
    pub(crate) fn get(&mut self, gateway: &Gateway, target: &str) -> Reply {
        let path = match target.strip_prefix("http://") {
            Some(rest) => &rest[rest.find('/').expect("a path")..],
            None => target,
        };
        let pairs: Vec<String> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let cookies =
            if pairs.is_empty() { String::new() } else { format!("Cookie: {}\r\n", pairs.join("; ")) };
        let reply = gateway.get_with(path, &cookies);
        for line in reply.head.lines() {
            let Some((name, line)) = line.split_once(':') else { continue };
            if !name.eq_ignore_ascii_case("set-cookie") {
                continue;
            }
            let pair = line.trim().split(';').next().unwrap_or_default();
            let (name, value) = pair.split_once('=').expect("a cookie");
            match line.contains("Max-Age=0") {
                true => self.cookies.remove(name),
                false => self.cookies.insert(name.to_owned(), value.to_owned()),
            };
        }
        reply
    }

    /// Logs in from a page; returns the response after the login.
    pub(crate) fn log_in(&mut self, gateway: &Gateway, idp: &Idp, page: &str) -> Reply {
        let start = self.get(gateway, page);
        assert_eq!(start.status, 302, "{start:?}");
        let back = idp.log_in(start.field("location").expect("a location"));
        let end = self.get(gateway, &back);
        assert_eq!(end.status, 302, "{}", end.text());
        let page = end.field("location").expect("a location").to_owned();
        self.get(gateway, &page)
    }
}
