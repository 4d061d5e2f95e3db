//! Common parts of the authentication plugins: the refusal, the anonymous consumer, fields that name a consumer.

use yumen_plugin::{Exchange, LocalResponse};

/// 401 with a message and the challenge `WWW-Authenticate: <scheme> realm="<realm>"` (RFC 9110 §11.6.1).
pub(crate) fn refuse(message: &str, challenge: &str) -> LocalResponse {
    LocalResponse::message(401, message).field("WWW-Authenticate", challenge)
}

/// Makes the named consumer the one of this exchange. An unknown name returns the message for the client.
pub(crate) fn identify_anonymous(ex: &mut Exchange<'_>, username: &str) -> Result<(), &'static str> {
    let consumers = ex.consumers;
    let consumer = consumers.named(username).ok_or("Invalid user authorization")?;
    ex.identify(consumer, None);
    Ok(())
}

/// Left in an exchange by a plugin that lets a request pass without a credential. `multi-auth` counts it as refused.
pub(crate) struct PassedWithoutCredential;

/// Compares secrets in constant time; only their lengths can be observed.
pub(crate) fn same_secret(left: &[u8], right: &[u8]) -> bool {
    // `black_box` keeps the compiler from ending the loop at the first difference.
    let differing = left.iter().zip(right).fold(0, |bits, (left, right)| bits | (left ^ right));
    left.len() == right.len() && std::hint::black_box(differing) == 0
}

/// Fields by which the upstream knows a consumer.
pub(crate) const CONSUMER_FIELDS: [&str; 3] =
    ["X-Consumer-Username", "X-Consumer-Custom-ID", "X-Credential-Identifier"];

/// Removes the fields by which the upstream knows a consumer if there is none: a login that names only a user must not
/// pass on those of a client.
pub(crate) fn remove_consumer_fields(ex: &mut Exchange<'_>) {
    if ex.consumer.is_none() {
        ex.request.fields.remove_all_equivalent(&CONSUMER_FIELDS);
    }
}
