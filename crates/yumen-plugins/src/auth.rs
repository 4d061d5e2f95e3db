//! Common parts of the authentication plugins: the refusal and the anonymous consumer.

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

/// Compares secrets in constant time; only their lengths can be observed.
pub(crate) fn same_secret(left: &[u8], right: &[u8]) -> bool {
    // `black_box` keeps the compiler from ending the loop at the first difference.
    let differing = left.iter().zip(right).fold(0, |bits, (left, right)| bits | (left ^ right));
    left.len() == right.len() && std::hint::black_box(differing) == 0
}
