//! The token of a request: `V1#APPID#TOKEN`, where TOKEN is that of the wolf server.

use std::borrow::Cow;

use yumen_plugin::{LocalResponse, RequestHead};

use crate::query::{QueryArgument, argument};

const VERSION: &str = "V1";

#[derive(Debug, PartialEq)]
pub(super) struct RbacToken {
    pub(super) appid: String,
    /// Visible ASCII.
    pub(super) wolf_token: String,
}

impl RbacToken {
    /// The token of a request, or the refusal.
    pub(super) fn of_request(request: &RequestHead) -> Result<RbacToken, LocalResponse> {
        let text =
            find(request).ok_or_else(|| LocalResponse::message(401, "Missing rbac token in request"))?;
        RbacToken::parse(&text).ok_or_else(|| LocalResponse::message(401, "invalid rbac token: parse failed"))
    }

    fn parse(text: &[u8]) -> Option<RbacToken> {
        let mut parts = std::str::from_utf8(text).ok()?.splitn(3, '#');
        let (version, appid, wolf_token) = (parts.next()?, parts.next()?, parts.next()?);
        // The token of the server becomes a field.
        let is_visible = wolf_token.bytes().all(|byte| byte.is_ascii_graphic());
        let is_token = version == VERSION && !appid.is_empty() && !wolf_token.is_empty() && is_visible;
        is_token.then(|| RbacToken { appid: appid.to_owned(), wolf_token: wolf_token.to_owned() })
    }

    /// The text of a token.
    pub(super) fn write(appid: &str, wolf_token: &str) -> String {
        format!("{VERSION}#{appid}#{wolf_token}")
    }
}

/// The text of the token: the query argument, `Authorization`, `x-rbac-token`, the cookie of this name.
fn find(request: &RequestHead) -> Option<Cow<'_, [u8]>> {
    match argument(request.query().unwrap_or_default(), b"rbac_token") {
        QueryArgument::One(text) => return Some(text),
        // One without a value, or several: readers could take different ones.
        QueryArgument::Other => return Some(Cow::Borrowed(b"")),
        QueryArgument::Absent => {}
    }
    let fields = &request.fields;
    let text = fields.get("Authorization").or_else(|| fields.get("x-rbac-token"));
    text.or_else(|| request.cookie(b"x-rbac-token")).map(Cow::Borrowed)
}
