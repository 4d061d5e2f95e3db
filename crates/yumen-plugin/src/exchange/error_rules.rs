//! The form of error responses, and the upstream whose responses replace them. A native action selects both; the proxy
//! applies them.

use yumen_http::Fields;

use crate::{LocalResponse, UpstreamSlot};

/// The error responses of an exchange.
#[derive(Debug, Default)]
pub struct ErrorRules {
    /// Whether messages of the gateway are small HTML pages.
    pub is_html: bool,
    /// Responses of another upstream in place of error responses.
    pub pages: Option<ErrorPageRules>,
}

/// Responses of another upstream in place of those with certain statuses.
#[derive(Debug)]
pub struct ErrorPageRules {
    /// The upstream.
    pub upstream: UpstreamSlot,
    /// The statuses.
    pub statuses: Box<[u16]>,
    /// Whether the 503 of an upstream without endpoints is replaced as well.
    pub without_endpoint: bool,
    /// The path of the request.
    pub path: Box<str>,
    /// Further fields of the request.
    pub fields: Fields,
    /// Timeout of the response, in milliseconds.
    pub timeout_ms: u64,
}

impl ErrorPageRules {
    /// Whether responses with this status are replaced.
    pub fn covers(&self, status: u16) -> bool {
        self.statuses.contains(&status)
    }
}

impl ErrorRules {
    /// A message of the gateway in its form. Bodies that the operator wrote stay.
    pub fn formed(&self, response: LocalResponse) -> LocalResponse {
        let is_message = response.is_message || response.body.is_empty();
        // RFC 9110 §15.4.5: a 304 has no body.
        if !self.is_html || !is_message || response.status < 300 || response.status == 304 {
            return response;
        }
        let title = format!("{} {}", response.status, title_of(response.status)).trim().to_owned();
        let page = format!(
            "<html>\r\n<head><title>{title}</title></head>\r\n<body>\r\n<center><h1>{title}</h1></center>\r\n\
             <hr><center>nginx</center>\r\n</body>\r\n</html>\r\n"
        );
        let mut response = response.body(page);
        response.fields_mut().set("Content-Type", b"text/html");
        response
    }
}

/// The reason in the pages of NGINX.
fn title_of(status: u16) -> &'static str {
    match status {
        401 => "Authorization Required",
        405 => "Not Allowed",
        408 => "Request Time-out",
        413 => "Request Entity Too Large",
        414 => "Request-URI Too Large",
        416 => "Requested Range Not Satisfiable",
        503 => "Service Temporarily Unavailable",
        504 => "Gateway Time-out",
        other => yumen_http::encode::standard_reason(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_the_gateway_become_pages_and_other_bodies_stay() {
        let rules = ErrorRules { is_html: true, pages: None };
        let check = |response: LocalResponse, expected: &str| {
            let formed = rules.formed(response);
            let body = String::from_utf8_lossy(&formed.body);
            let title = body.split_once("<h1>").and_then(|(_, rest)| rest.split_once("</h1>"));
            assert_eq!(title.map_or(&*body, |(title, _)| title), expected);
        };
        check(LocalResponse::error_msg(503, "no endpoint"), "503 Service Temporarily Unavailable");
        check(LocalResponse::message(401, "no"), "401 Authorization Required");
        check(LocalResponse::status(413), "413 Request Entity Too Large");
        check(LocalResponse::status(308).field("Location", "/"), "308 Permanent Redirect");
        check(LocalResponse::status(404).body("own"), "own");
        check(LocalResponse::status(304), "");
        check(LocalResponse::status(200), "");
    }
}
