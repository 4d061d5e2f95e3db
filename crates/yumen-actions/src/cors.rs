//! Cross-origin resource sharing by the rules of the Gateway API and the Fetch standard.

use yumen_config::resource::CorsSpec;
use yumen_plugin::{Exchange, KnownField, LocalResponse, Method, ResponseHead};

const ALLOW_ORIGIN: &str = "Access-Control-Allow-Origin";
const ALLOW_CREDENTIALS: &str = "Access-Control-Allow-Credentials";
const EXPOSE_HEADERS: &str = "Access-Control-Expose-Headers";
const REQUEST_METHOD: &str = "Access-Control-Request-Method";
const REQUEST_HEADERS: &str = "Access-Control-Request-Headers";

/// Response fields that every script may read (Fetch, CORS-safelisted response-header name).
const SAFELISTED: [&str; 7] = [
    "cache-control",
    "content-language",
    "content-length",
    "content-type",
    "expires",
    "last-modified",
    "pragma",
];

/// Origins of one rule.
#[derive(Debug, Clone)]
enum AllowedOrigin {
    Any,
    /// In lower case.
    One(Box<str>),
    /// Scheme with `://`, and the end of the authority: `.example.com:8443`; in lower case.
    Below(Box<str>, Box<str>),
    /// Every host under a scheme with `://`.
    Scheme(Box<str>),
}

impl AllowedOrigin {
    fn new(written: &str) -> AllowedOrigin {
        let lower = written.to_ascii_lowercase();
        let Some((scheme, authority)) = lower.split_once("://") else { return AllowedOrigin::Any };
        let scheme = format!("{scheme}://").into();
        match authority.strip_prefix('*') {
            None => AllowedOrigin::One(lower.as_str().into()),
            Some("") => AllowedOrigin::Scheme(scheme),
            Some(rest) => AllowedOrigin::Below(scheme, rest.into()),
        }
    }

    fn admits(&self, origin: &str) -> bool {
        match self {
            AllowedOrigin::Any => true,
            AllowedOrigin::One(one) => **one == *origin,
            AllowedOrigin::Scheme(scheme) => origin.starts_with(&**scheme),
            AllowedOrigin::Below(scheme, end) => {
                let labels =
                    origin.strip_prefix(&**scheme).and_then(|authority| authority.strip_suffix(&**end));
                // A port or a slash before the end belongs to another host.
                labels.is_some_and(|labels| {
                    !labels.is_empty() && !labels.contains([':', '/', '@']) && !labels.starts_with('.')
                })
            }
        }
    }
}

/// Names that are allowed, as the value of a field.
#[derive(Debug, Clone)]
enum AllowedNames {
    None,
    Any,
    List(Box<str>),
}

impl AllowedNames {
    fn new(written: &[String]) -> AllowedNames {
        match written {
            [] => AllowedNames::None,
            names if names.iter().any(|name| name == "*") => AllowedNames::Any,
            names => AllowedNames::List(names.join(", ").into()),
        }
    }
}

/// Compiled rules.
#[derive(Debug, Clone)]
pub(crate) struct CorsAction {
    origins: Box<[AllowedOrigin]>,
    has_credentials: bool,
    methods: AllowedNames,
    headers: AllowedNames,
    exposed: AllowedNames,
    max_age: Box<str>,
}

/// Mark of a preflight request that the gateway has answered.
pub(crate) struct AnsweredPreflight;

/// The origin of a request as received, since later plugins may change the field.
pub(crate) struct ReceivedOrigin(Box<[u8]>);

impl CorsAction {
    pub(crate) fn new(written: &CorsSpec) -> CorsAction {
        CorsAction {
            origins: written.allow_origins.iter().map(|origin| AllowedOrigin::new(origin)).collect(),
            has_credentials: written.allow_credentials,
            methods: AllowedNames::new(&written.allow_methods),
            headers: AllowedNames::new(&written.allow_headers),
            exposed: AllowedNames::new(&written.expose_headers),
            max_age: written.max_age.to_string().into(),
        }
    }

    /// Keeps the origin of a request, and responds to a preflight request.
    pub(crate) fn arrive(&self, ex: &mut Exchange<'_>) -> Option<LocalResponse> {
        let origin: Box<[u8]> =
            ex.request.fields.known(KnownField::Origin).filter(|one| !one.is_empty())?.into();
        let is_preflight = ex.request.method() == Method::Options && ex.request.fields.has(REQUEST_METHOD);
        if !is_preflight {
            ex.leave(ReceivedOrigin(origin));
            return None;
        }
        let response = self.preflight(ex, &origin);
        ex.leave(AnsweredPreflight);
        Some(response)
    }

    fn preflight(&self, ex: &Exchange<'_>, origin: &[u8]) -> LocalResponse {
        let mut response = LocalResponse::status(204);
        let Some(allowed) = self.allowed(origin) else {
            self.vary(response.fields_mut());
            return response;
        };
        let fields = response.fields_mut();
        fields.set(ALLOW_ORIGIN, allowed);
        let requested = |name| ex.request.fields.get(name);
        let lists = [
            ("Access-Control-Allow-Methods", &self.methods, requested(REQUEST_METHOD)),
            ("Access-Control-Allow-Headers", &self.headers, requested(REQUEST_HEADERS)),
        ];
        for (name, rule, requested) in lists {
            match (rule, requested) {
                (AllowedNames::None, _) => {}
                (AllowedNames::List(list), _) => fields.set(name, list.as_bytes()),
                // With credentials, `*` is no wildcard (Fetch, CORS protocol and credentials).
                (AllowedNames::Any, Some(requested)) if self.has_credentials => fields.set(name, requested),
                (AllowedNames::Any, None) if self.has_credentials => {}
                (AllowedNames::Any, _) => fields.set(name, b"*"),
            }
        }
        // The Gateway API asks for it here as well, although browsers read it in responses only.
        match &self.exposed {
            AllowedNames::List(list) => fields.set(EXPOSE_HEADERS, list.as_bytes()),
            AllowedNames::Any if !self.has_credentials => fields.set(EXPOSE_HEADERS, b"*"),
            // The response whose fields could be listed is not known yet.
            AllowedNames::Any | AllowedNames::None => {}
        }
        if self.has_credentials {
            fields.set(ALLOW_CREDENTIALS, b"true");
        }
        fields.set("Access-Control-Max-Age", self.max_age.as_bytes());
        self.vary(fields);
        response
    }

    /// Adds the fields to a response that a script may read.
    pub(crate) fn edit_response(&self, ex: &Exchange<'_>, head: &mut ResponseHead) {
        if ex.note::<AnsweredPreflight>().is_some() {
            return;
        }
        // Also without an origin: a cache must not reuse that response for another origin (Fetch, CORS protocol and
        // HTTP caches).
        self.vary(&mut head.fields);
        let noted = ex.note::<ReceivedOrigin>().map(|noted| &*noted.0);
        let Some(origin) = noted.or_else(|| ex.request.fields.known(KnownField::Origin)) else { return };
        let Some(allowed) = self.allowed(origin) else { return };
        head.fields.set(ALLOW_ORIGIN, allowed);
        match self.has_credentials {
            true => head.fields.set(ALLOW_CREDENTIALS, b"true"),
            false => drop(head.fields.remove(ALLOW_CREDENTIALS)),
        }
        match &self.exposed {
            AllowedNames::None => {}
            AllowedNames::List(list) => head.fields.set(EXPOSE_HEADERS, list.as_bytes()),
            AllowedNames::Any if self.has_credentials => {
                let names = readable_names(head);
                head.fields.set(EXPOSE_HEADERS, &names);
            }
            AllowedNames::Any => head.fields.set(EXPOSE_HEADERS, b"*"),
        }
    }

    /// The value of `Access-Control-Allow-Origin`.
    fn allowed<'o>(&self, origin: &'o [u8]) -> Option<&'o [u8]> {
        let text = std::str::from_utf8(origin).ok()?.to_ascii_lowercase();
        let rule = self.origins.iter().find(|rule| rule.admits(&text))?;
        let is_any = matches!(rule, AllowedOrigin::Any) && !self.has_credentials;
        Some(if is_any { b"*" } else { origin })
    }

    /// Adds `Origin` to `Vary`, unless every origin gets the same response.
    fn vary(&self, fields: &mut yumen_plugin::Fields) {
        let is_constant = !self.has_credentials && matches!(&*self.origins, [AllowedOrigin::Any]);
        if !is_constant {
            fields.add("Vary", b"Origin");
        }
    }
}

/// The names of the response's fields, for credentialed requests, for which `*` is no wildcard.
fn readable_names(head: &ResponseHead) -> Vec<u8> {
    let mut names: Vec<&[u8]> = Vec::new();
    for (name, _) in head.fields.iter() {
        let is_listed = |other: &&[u8]| other.eq_ignore_ascii_case(name);
        let is_safelisted = SAFELISTED.iter().any(|safe| name.eq_ignore_ascii_case(safe.as_bytes()));
        let is_of_cors = name.len() > 15 && name[..15].eq_ignore_ascii_case(b"access-control-");
        if !is_safelisted && !is_of_cors && !names.iter().any(is_listed) {
            names.push(name);
        }
    }
    names.join(&b", "[..])
}

#[cfg(test)]
mod tests;
