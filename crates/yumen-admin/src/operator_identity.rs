//! The identity provider as the admin listener sees it. The running gateway implements it.

use std::future::Future;
use std::pin::Pin;

use crate::keys::KeyHolder;

/// The result of a step at the provider, in time.
pub type IdentityFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, IdentityRefusal>> + Send + 'a>>;

/// An identity provider, and the rules by which its users get roles.
pub trait IdentityProvider: Send + Sync {
    /// Host of the provider, for the button.
    fn host(&self) -> &str;

    /// Whether browsers reach the dashboard over TLS.
    fn is_over_tls(&self) -> bool;

    /// The URL at the provider for a login with this seed, a random text that stays with the browser.
    fn login_url<'a>(&'a self, seed: &'a str) -> IdentityFuture<'a, String>;

    /// The user of a callback with this query.
    fn identify<'a>(&'a self, seed: &'a str, query: &'a str) -> IdentityFuture<'a, KeyHolder>;
}

/// The reason why a login at the provider fails. The text is for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdentityRefusal {
    /// The provider does not respond.
    Unavailable(String),
    /// The browser has not begun this login, or too long ago.
    Foreign,
    /// The provider has refused, or its response is not valid.
    Refused(String),
    /// The user has no role.
    NoRole(String),
}

impl IdentityRefusal {
    /// The word in the fragment, for which the page has a text.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            IdentityRefusal::Unavailable(_) => "unavailable",
            IdentityRefusal::Foreign => "expired",
            IdentityRefusal::Refused(_) => "refused",
            IdentityRefusal::NoRole(_) => "no_role",
        }
    }
}

impl std::fmt::Display for IdentityRefusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            IdentityRefusal::Unavailable(why) => write!(f, "the identity provider is not available: {why}"),
            IdentityRefusal::Foreign => f.write_str("no such login is in progress"),
            IdentityRefusal::Refused(why) => write!(f, "the identity provider refused: {why}"),
            IdentityRefusal::NoRole(user) => write!(f, "{user} has no role: no row of openid.roles matches"),
        }
    }
}
