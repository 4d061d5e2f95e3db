//! The sessions of one configuration: finding, saving, renewing and ending them.

use std::sync::{Arc, OnceLock};

use aws_lc_rs::digest;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use yumen_plugin::{Exchange, ExternalUser, Fields, LocalResponse, PerWorker, PluginHost, RequestHead};

use super::cookie::{self, CHUNKS_MAX, LoginCookieAttributes, chunk_name};
use super::redis::SessionRedis;
use super::seal::SALT_BYTES;
use super::{CookiePurpose, LoginSealKeys, SealFault};
use crate::recent_texts::RecentTexts;

/// Lifetime of a session without any timeout.
const FOREVER_S: u64 = 10 * 365 * 86_400;
const TIMES_BYTES: usize = 16;
const ID_BYTES: usize = 32;

/// A logged-in user.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct LoginSession {
    /// Issuer of the ID token.
    #[serde(rename = "i")]
    pub(crate) issuer: String,
    /// Client id of the gateway at the provider.
    #[serde(rename = "c")]
    pub(crate) client_id: String,
    /// The user at the provider.
    #[serde(rename = "s")]
    pub(crate) subject: String,
    /// The session at the provider.
    #[serde(rename = "d", skip_serializing_if = "Option::is_none")]
    pub(crate) sid: Option<String>,
    #[serde(rename = "a", skip_serializing_if = "Option::is_none")]
    pub(crate) access_token: Option<String>,
    #[serde(rename = "r", skip_serializing_if = "Option::is_none")]
    pub(crate) refresh_token: Option<String>,
    #[serde(rename = "t", skip_serializing_if = "Option::is_none")]
    pub(crate) id_token: Option<String>,
    /// The claims of the userinfo endpoint.
    #[serde(rename = "u", skip_serializing_if = "Option::is_none")]
    pub(crate) user: Option<Value>,
    /// End of the access token in seconds of Unix time.
    #[serde(rename = "e")]
    pub(crate) access_expires_s: u64,
    /// Time of the last login at the provider.
    #[serde(rename = "l")]
    pub(crate) authenticated_s: u64,
}

/// Times of a session in seconds of Unix time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SessionTimes {
    pub(crate) created_s: u64,
    /// The last renewal.
    pub(crate) used_s: u64,
}

/// The timeouts; 0 is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SessionTimeouts {
    pub(crate) idle_s: u64,
    pub(crate) rolling_s: u64,
    pub(crate) absolute_s: u64,
}

impl SessionTimeouts {
    /// Longest time without renewal.
    fn unused_s(&self) -> u64 {
        let limited = [self.idle_s, self.rolling_s].into_iter().filter(|limit| *limit > 0);
        limited.min().unwrap_or(FOREVER_S)
    }

    /// The end of a session that is not used again.
    pub(crate) fn end_s(&self, times: SessionTimes) -> u64 {
        let absolute_s = if self.absolute_s > 0 { self.absolute_s } else { FOREVER_S };
        let unused_end_s = times.used_s.saturating_add(self.unused_s());
        unused_end_s.min(times.created_s.saturating_add(absolute_s))
    }

    /// Whether a tenth of the time without renewal has passed: most responses then need no cookie.
    pub(crate) fn is_renewal_due(&self, times: SessionTimes, now_s: u64) -> bool {
        now_s.saturating_sub(times.used_s) > (self.unused_s() / 10).min(3600)
    }
}

/// A session of a request.
pub(crate) struct OpenedLogin {
    pub(crate) session: LoginSession,
    pub(crate) times: SessionTimes,
    /// Whether the session is sealed with a former secret.
    has_former_secret: bool,
    /// The place in the store.
    stored: Option<StoredLogin>,
    /// The identity for the upstream, or the refusal; made at the first request.
    pub(crate) prepared: OnceLock<Result<PreparedIdentity, LocalResponse>>,
}

/// The place of a session in the store.
pub(super) struct StoredLogin {
    id: [u8; ID_BYTES],
    /// SHA-1 of the value as hexadecimal text, which Redis compares.
    digest: String,
}

/// The reason for which a session is saved.
#[derive(Clone, Copy)]
pub(crate) enum SessionSave<'o> {
    /// A login. A session in the store gets a new number: one that an attacker knows must not become that of a user.
    Login,
    /// New tokens of this session.
    Tokens(&'o OpenedLogin),
    /// The use of this session. If another request has saved it meanwhile, that stays: it may have newer tokens.
    Use(&'o OpenedLogin),
}

impl<'o> SessionSave<'o> {
    fn previous(self) -> Option<&'o OpenedLogin> {
        match self {
            SessionSave::Login => None,
            SessionSave::Tokens(opened) | SessionSave::Use(opened) => Some(opened),
        }
    }
}

/// The sessions that a provider ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EndedSessions {
    /// Those of one session at the provider.
    Session(String),
    /// All of a user.
    Subject(String),
}

impl EndedSessions {
    /// The key of the set with the sessions in the store.
    fn key(&self, issuer: &str, client_id: &str) -> String {
        let (kind, name) = match self {
            EndedSessions::Session(sid) => ("sid", sid),
            EndedSessions::Subject(subject) => ("sub", subject),
        };
        let mut owner = Vec::new();
        for part in [issuer, client_id, name] {
            owner.extend(part.len().to_be_bytes());
            owner.extend(part.as_bytes());
        }
        format!("{kind}:{}", stored_key(&owner))
    }
}

/// The right to renew the tokens of a session in the store.
pub(crate) struct RenewalLock {
    key: String,
    holder: String,
}

/// The noted use of a logout token.
pub(crate) struct TokenUse {
    key: String,
    holder: String,
}

/// The result of asking for a [`RenewalLock`].
pub(crate) enum RenewalTurn {
    Locked(RenewalLock),
    /// Another request renews the tokens.
    Busy,
    /// The session is in a cookie: the node decides alone.
    Local,
    /// Redis is out of reach.
    Unavailable,
}

/// An identity in the form in which requests carry it.
#[derive(Debug, Clone)]
pub(crate) struct PreparedIdentity {
    names: Vec<&'static str>,
    /// Fields for the upstream. Their values are checked once, and copied into each request as one block.
    fields: Fields,
    user: ExternalUser,
}

impl PreparedIdentity {
    /// An identity with these fields.
    pub(crate) fn new(values: &[(&'static str, Vec<u8>)], user: ExternalUser) -> PreparedIdentity {
        let mut fields = Fields::default();
        values.iter().for_each(|(name, value)| fields.set_only(name, value));
        PreparedIdentity { names: values.iter().map(|(name, _)| *name).collect(), fields, user }
    }

    /// Size of the fields in bytes.
    pub(crate) fn fields_bytes(&self) -> usize {
        self.fields.iter().map(|(name, value)| name.len() + value.len()).sum()
    }

    /// Gives the request this identity. Fields that an application may equate with them are removed.
    pub(crate) fn apply(&self, ex: &mut Exchange<'_>) {
        ex.request.fields.remove_all_equivalent(&self.names);
        ex.request.fields.extend(&self.fields);
        ex.external_user = Some(Box::new(self.user.clone()));
    }
}

/// The result of looking for a session.
pub(crate) enum SessionLookup {
    /// No session, or one that has ended.
    Absent,
    /// A session.
    Found(Arc<OpenedLogin>),
    /// Cookies that do not open.
    Invalid(SealFault),
    /// The session is in the store: [`SessionStore::load`].
    Stored([u8; ID_BYTES]),
}

/// The reason why a session is not available or was not saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionFault {
    /// Redis is out of reach.
    StorageUnavailable,
    /// The session needs more than eight cookies.
    TooLarge,
    /// Another request has ended the session.
    Ended,
}

/// A request as far as cookies depend on it.
#[derive(Clone, Copy)]
pub(crate) struct CookieRequest<'r> {
    pub(crate) head: &'r RequestHead,
    pub(crate) is_https: bool,
    pub(crate) now_s: u64,
}

/// The sessions of one configuration.
pub(crate) struct SessionStore {
    keys: LoginSealKeys,
    name: Box<str>,
    attributes: LoginCookieAttributes,
    timeouts: SessionTimeouts,
    redis: Option<SessionRedis>,
    /// Whether the provider may end sessions, so that the store finds them by its names.
    is_indexed: bool,
    opened: PerWorker<RecentTexts<Arc<OpenedLogin>>>,
}

impl SessionStore {
    pub(super) fn new(
        keys: LoginSealKeys,
        name: String,
        attributes: LoginCookieAttributes,
        timeouts: SessionTimeouts,
        redis: Option<SessionRedis>,
        workers: usize,
    ) -> SessionStore {
        let opened = PerWorker::new(workers, RecentTexts::default);
        SessionStore { keys, name: name.into(), attributes, timeouts, redis, is_indexed: false, opened }
    }

    /// The same sessions, which their provider may end; `None` if they are in cookies.
    pub(crate) fn indexed(self) -> Option<SessionStore> {
        self.redis.is_some().then_some(SessionStore { is_indexed: true, ..self })
    }

    /// Registers a new session in the store under the names by which its provider may end it.
    async fn index(
        &self,
        host: &dyn PluginHost,
        session: &LoginSession,
        key: &str,
    ) -> Result<(), SessionFault> {
        let Some(redis) = self.redis.as_ref().filter(|_| self.is_indexed) else { return Ok(()) };
        // Renewals extend a session, up to this end.
        let absolute_s = if self.timeouts.absolute_s > 0 { self.timeouts.absolute_s } else { FOREVER_S };
        let sid = session.sid.clone().map(EndedSessions::Session);
        for names in sid.into_iter().chain([EndedSessions::Subject(session.subject.clone())]) {
            let set = names.key(&session.issuer, &session.client_id);
            let added = redis.index(host, &set, key, absolute_s.saturating_mul(1000)).await;
            added.map_err(|_| SessionFault::StorageUnavailable)?;
        }
        Ok(())
    }

    /// Ends sessions of a provider and client in the store.
    pub(crate) async fn end_all(
        &self,
        host: &dyn PluginHost,
        issuer: &str,
        client_id: &str,
        ended: &EndedSessions,
    ) -> Result<(), SessionFault> {
        let Some(redis) = &self.redis else { return Ok(()) };
        let set = ended.key(issuer, client_id);
        let unavailable = |_| SessionFault::StorageUnavailable;
        for key in redis.members(host, &set).await.map_err(unavailable)? {
            redis.delete(host, &key).await.map_err(unavailable)?;
        }
        // Last, so that a logout that failed can be repeated.
        redis.delete(host, &set).await.map_err(unavailable)
    }

    /// Notes the use of a logout token, by its signed part, for `lasts_ms`. `None` if it was used before: a login may
    /// have followed, which the token does not concern.
    pub(crate) async fn use_token(
        &self,
        host: &dyn PluginHost,
        signed: &[u8],
        lasts_ms: u64,
    ) -> Result<Option<TokenUse>, SessionFault> {
        let key = format!("logout:{}", stored_key(signed));
        let holder = hex_of(&random::<16>(host));
        let Some(redis) = &self.redis else { return Ok(Some(TokenUse { key, holder })) };
        let is_first = redis.lock(host, &key, &holder, lasts_ms).await;
        let is_first = is_first.map_err(|_| SessionFault::StorageUnavailable)?;
        Ok(is_first.then_some(TokenUse { key, holder }))
    }

    /// Takes back the use of a token that had no effect, so that the provider can repeat the logout.
    pub(crate) fn retract_use(&self, host: &dyn PluginHost, token: &TokenUse) {
        if let Some(redis) = &self.redis {
            redis.unlock(host, &token.key, &token.holder);
        }
    }

    /// The name of the session cookie.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The keys, for other cookies of a login.
    pub(crate) fn keys(&self) -> &LoginSealKeys {
        &self.keys
    }

    /// The attributes of the session cookie.
    pub(crate) fn attributes(&self) -> &LoginCookieAttributes {
        &self.attributes
    }

    /// The session of a request.
    pub(crate) fn find(&self, ex: &Exchange<'_>) -> SessionLookup {
        let (value, chunks) = match cookie::join(&ex.request, &self.name) {
            Ok(Some(joined)) => joined,
            Ok(None) => return SessionLookup::Absent,
            Err(fault) => return SessionLookup::Invalid(fault),
        };
        if self.redis.is_some() {
            // An id is short; a split one is of another configuration.
            let opened = self.keys.open(CookiePurpose::StoredSession, &self.name, &value);
            return match opened.map(|(id, _)| <[u8; ID_BYTES]>::try_from(id)) {
                Ok(Ok(id)) if chunks == 1 => SessionLookup::Stored(id),
                Ok(_) => SessionLookup::Invalid(SealFault::Malformed),
                Err(fault) => SessionLookup::Invalid(fault),
            };
        }
        let now_s = ex.now.unix_s();
        let known = self.opened.lock(ex.host).get(&value, now_s);
        if let Some(known) = known {
            return SessionLookup::Found(known);
        }
        let opened = match self.keys.open(CookiePurpose::Session, &self.name, &value) {
            Ok((text, key)) => OpenedLogin::read(&text, key > 0, None),
            Err(fault) => return SessionLookup::Invalid(fault),
        };
        let Some(opened) = opened.map(Arc::new) else { return SessionLookup::Invalid(SealFault::Malformed) };
        let end_s = self.timeouts.end_s(opened.times);
        if end_s <= now_s {
            return SessionLookup::Absent;
        }
        // Base64, claims and prepared fields take some times the size of the cookie.
        self.opened.lock(ex.host).insert(&value, opened.clone(), 4 * value.len(), end_s);
        SessionLookup::Found(opened)
    }

    /// The session with this number in the store; `None` if it has ended.
    pub(crate) async fn load(
        &self,
        host: &dyn PluginHost,
        id: [u8; ID_BYTES],
        now_s: u64,
    ) -> Result<Option<Arc<OpenedLogin>>, SessionFault> {
        let Some(redis) = &self.redis else { return Ok(None) };
        let key = stored_key(&id);
        let value = redis.get(host, &key).await.map_err(|_| SessionFault::StorageUnavailable)?;
        let Some(value) = value else { return Ok(None) };
        let opened = self.keys.open(CookiePurpose::StoredSession, &key, &value).ok();
        let digest = hex_of(digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, &value).as_ref());
        let stored = StoredLogin { id, digest };
        let opened = opened.and_then(|(text, secret)| OpenedLogin::read(&text, secret > 0, Some(stored)));
        Ok(opened.filter(|opened| self.timeouts.end_s(opened.times) > now_s).map(Arc::new))
    }

    /// Whether a session is to be saved again with its use at `now_s`.
    pub(crate) fn is_renewal_due(&self, opened: &OpenedLogin, now_s: u64) -> bool {
        opened.has_former_secret || self.timeouts.is_renewal_due(opened.times, now_s)
    }

    /// Loads a session again, which another request may have renewed; `None` if it has ended.
    pub(crate) async fn reload(
        &self,
        host: &dyn PluginHost,
        opened: &OpenedLogin,
        now_s: u64,
    ) -> Result<Option<Arc<OpenedLogin>>, SessionFault> {
        match &opened.stored {
            Some(stored) => self.load(host, stored.id, now_s).await,
            None => Ok(None),
        }
    }

    /// Asks for the right to renew the tokens of a session, over all nodes, for `lasts_ms`.
    pub(crate) async fn lock_renewal(
        &self,
        host: &dyn PluginHost,
        opened: &OpenedLogin,
        lasts_ms: u64,
    ) -> RenewalTurn {
        let (Some(redis), Some(stored)) = (&self.redis, &opened.stored) else { return RenewalTurn::Local };
        let key = format!("{}:renewal", stored_key(&stored.id));
        let holder = hex_of(&random::<16>(host));
        match redis.lock(host, &key, &holder, lasts_ms).await {
            Ok(true) => RenewalTurn::Locked(RenewalLock { key, holder }),
            Ok(false) => RenewalTurn::Busy,
            Err(_) => RenewalTurn::Unavailable,
        }
    }

    /// Ends the right to renew. A request whose client leaves does not come here: the lock then ends by itself.
    pub(crate) fn unlock_renewal(&self, host: &dyn PluginHost, lock: &RenewalLock) {
        if let Some(redis) = &self.redis {
            redis.unlock(host, &lock.key, &lock.holder);
        }
    }

    /// Saves a session and returns the values of `Set-Cookie`.
    pub(crate) async fn save(
        &self,
        host: &dyn PluginHost,
        request: CookieRequest<'_>,
        session: &LoginSession,
        reason: SessionSave<'_>,
    ) -> Result<Vec<String>, SessionFault> {
        let previous = reason.previous();
        let Some(redis) = &self.redis else { return self.seal(host, request, session, previous) };
        let times = SessionTimes {
            created_s: previous.map_or(request.now_s, |one| one.times.created_s),
            used_s: request.now_s,
        };
        let id = previous.and_then(|one| one.stored.as_ref()).map_or_else(|| random(host), |one| one.id);
        let key = stored_key(&id);
        let text = times.write(session);
        let sealed = self.keys.seal(CookiePurpose::StoredSession, &key, &text, random(host));
        let ends_ms = self.timeouts.end_s(times).saturating_sub(request.now_s).saturating_mul(1000);
        let sealed = sealed.ok_or(SessionFault::TooLarge)?;
        // Another request may have logged the user out meanwhile: only a login writes where nothing is.
        let saved = match reason {
            SessionSave::Login => {
                self.index(host, session, &key).await?;
                redis.set(host, &key, sealed, ends_ms).await.map(|()| true)
            }
            SessionSave::Tokens(_) => redis.renew(host, &key, sealed, ends_ms).await,
            SessionSave::Use(opened) => {
                let digest = opened.stored.as_ref().map_or("", |stored| &stored.digest);
                redis.replace(host, &key, sealed, ends_ms, digest).await
            }
        };
        if !saved.map_err(|_| SessionFault::StorageUnavailable)? {
            return Err(SessionFault::Ended);
        }
        if previous.is_some_and(|one| !one.has_former_secret) {
            return Ok(Vec::new());
        }
        let value = self.keys.seal(CookiePurpose::StoredSession, &self.name, &id, random(host));
        self.cookies(request, &value.ok_or(SessionFault::TooLarge)?).ok_or(SessionFault::TooLarge)
    }

    /// [`SessionStore::save`] for sessions in cookies, which need no wait.
    pub(crate) fn seal(
        &self,
        host: &dyn PluginHost,
        request: CookieRequest<'_>,
        session: &LoginSession,
        previous: Option<&OpenedLogin>,
    ) -> Result<Vec<String>, SessionFault> {
        let times = SessionTimes {
            created_s: previous.map_or(request.now_s, |one| one.times.created_s),
            used_s: request.now_s,
        };
        let mut session = session.clone();
        loop {
            let value =
                self.keys.seal(CookiePurpose::Session, &self.name, &times.write(&session), random(host));
            if let Some(cookies) = value.and_then(|value| self.cookies(request, &value)) {
                return Ok(cookies);
            }
            // Never a truncated cookie: the session would be lost, and the next request would log in again.
            if session.id_token.take().is_none() && session.user.take().is_none() {
                return Err(SessionFault::TooLarge);
            }
        }
    }

    /// The cookies of a value, and the removal of former ones beyond them.
    fn cookies(&self, request: CookieRequest<'_>, value: &str) -> Option<Vec<String>> {
        let parts = cookie::split(value)?;
        let line = |(at, part): (usize, &String)| {
            self.attributes.line(&chunk_name(&self.name, at + 1), part, None, request.is_https)
        };
        let mut lines: Vec<String> = parts.iter().enumerate().map(line).collect();
        lines.extend(self.removals(request, parts.len() + 1));
        Some(lines)
    }

    /// Ends a session in the store, and returns the values of `Set-Cookie` that remove its cookies.
    pub(crate) async fn clear(
        &self,
        host: &dyn PluginHost,
        request: CookieRequest<'_>,
        opened: Option<&OpenedLogin>,
    ) -> Result<Vec<String>, SessionFault> {
        if let (Some(redis), Some(stored)) = (&self.redis, opened.and_then(|one| one.stored.as_ref())) {
            let key = stored_key(&stored.id);
            redis.delete(host, &key).await.map_err(|_| SessionFault::StorageUnavailable)?;
        }
        Ok(self.removals(request, 1).collect())
    }

    /// Removals of the cookies in the request from this number on.
    fn removals<'a>(&'a self, request: CookieRequest<'a>, from: usize) -> impl Iterator<Item = String> + 'a {
        let names = (from..=CHUNKS_MAX).map(|number| chunk_name(&self.name, number));
        let present = names.filter(move |name| request.head.cookie(name.as_bytes()).is_some());
        present.map(move |name| self.attributes.line(&name, "", Some(0), request.is_https))
    }
}

pub(super) fn random<const N: usize>(host: &dyn PluginHost) -> [u8; N] {
    const { assert!(N >= SALT_BYTES) };
    let mut bytes = [0; N];
    host.fill_random(&mut bytes);
    bytes
}

/// The key in the store: a digest, so that a reader of its keys cannot make a cookie.
fn stored_key(id: &[u8]) -> String {
    hex_of(digest::digest(&digest::SHA256, id).as_ref())
}

pub(super) fn hex_of(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

impl SessionTimes {
    /// The text of a session: the times, then JSON.
    pub(super) fn write(self, session: &LoginSession) -> Vec<u8> {
        let mut text = Vec::with_capacity(1024);
        text.extend_from_slice(&self.created_s.to_be_bytes());
        text.extend_from_slice(&self.used_s.to_be_bytes());
        // Text members cannot fail to serialize.
        text.extend(serde_json::to_vec(session).unwrap_or_default());
        text
    }
}

impl OpenedLogin {
    pub(super) fn read(
        text: &[u8],
        has_former_secret: bool,
        stored: Option<StoredLogin>,
    ) -> Option<OpenedLogin> {
        let (times, json) = text.split_at_checked(TIMES_BYTES)?;
        let (created, used) = times.split_at(8);
        let times = SessionTimes {
            created_s: u64::from_be_bytes(created.try_into().ok()?),
            used_s: u64::from_be_bytes(used.try_into().ok()?),
        };
        let session = serde_json::from_slice(json).ok()?;
        Some(OpenedLogin { session, times, has_former_secret, stored, prepared: OnceLock::new() })
    }
}
