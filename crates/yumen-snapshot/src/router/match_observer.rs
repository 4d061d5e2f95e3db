//! Observers of a look-up, and the reasons why candidates lost.

use yumen_plugin::{ConditionExpr, Exchange, Method};

use crate::route::Route;

/// Why a route did not get a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MismatchReason {
    /// None of its hosts matches.
    Host,
    /// None of its paths matches.
    Path,
    /// The method is not among its methods.
    Method,
    /// The client address is in none of its networks.
    RemoteAddr,
    /// Its `vars` do not hold.
    Vars,
    /// A condition on a field does not hold.
    Header,
    /// A condition on a query argument does not hold.
    Query,
    /// The request is no gRPC call.
    Protocol,
    /// Another route with a closer host or path, or a higher priority, took precedence.
    Shadowed,
}

/// Observes a look-up. Serving passes `()`, which is compiled away.
pub trait MatchObserver {
    /// Whether the look-up continues after the winner, to find the routes that it shadows.
    const WATCHES: bool;

    /// Called for each candidate that lost, in the order of examination. The exchange is in the state of that
    /// candidate, including path parameters.
    fn candidate(&mut self, route: &Route, lost: MismatchReason, ex: &Exchange<'_>);

    /// Whether a condition holds; `None` ends the look-up.
    #[inline]
    fn eval(&mut self, vars: &ConditionExpr, ex: &Exchange<'_>) -> Option<bool> {
        Some(vars.eval(ex))
    }

    /// Whether a condition has ended the look-up.
    #[inline]
    fn has_stopped(&self) -> bool {
        false
    }
}

impl MatchObserver for () {
    const WATCHES: bool = false;

    #[inline]
    fn candidate(&mut self, _route: &Route, _lost: MismatchReason, _ex: &Exchange<'_>) {}
}

/// Stops if only the body decides whether a candidate matches.
#[derive(Default)]
pub(super) struct BodyNeedObserver {
    has_stopped: bool,
}

impl MatchObserver for BodyNeedObserver {
    const WATCHES: bool = false;

    #[inline]
    fn candidate(&mut self, _route: &Route, _lost: MismatchReason, _ex: &Exchange<'_>) {}

    fn eval(&mut self, vars: &ConditionExpr, ex: &Exchange<'_>) -> Option<bool> {
        let matched = vars.eval_before_body(ex);
        self.has_stopped = matched.is_none();
        matched
    }

    #[inline]
    fn has_stopped(&self) -> bool {
        self.has_stopped
    }
}

/// Records why each candidate lost.
#[derive(Debug, Default)]
pub struct MatchTrace {
    /// Candidates by path and host first, then all other routes.
    pub lost: Vec<RouteMismatch>,
}

/// A route that did not get a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteMismatch {
    /// Id of the route.
    pub id: Box<str>,
    /// The reason.
    pub lost: MismatchReason,
    /// The condition and the value found, if a filter decided.
    pub detail: String,
}

impl MatchObserver for MatchTrace {
    const WATCHES: bool = true;

    fn candidate(&mut self, route: &Route, lost: MismatchReason, ex: &Exchange<'_>) {
        let id = route.info.id.clone();
        self.lost.push(RouteMismatch { id, lost, detail: detail(route, lost, ex) });
    }
}

fn detail(route: &Route, lost: MismatchReason, ex: &Exchange<'_>) -> String {
    match lost {
        MismatchReason::Method => {
            let method = String::from_utf8_lossy(ex.request.method_name());
            format!("the method is {method}, allowed are {}", methods(route.matching.methods).join(", "))
        }
        MismatchReason::RemoteAddr => {
            format!("the client's address {} is not among its remote_addrs", ex.client.ip)
        }
        MismatchReason::Vars => {
            let vars = route.matching.filters.as_ref().and_then(|filters| filters.vars.as_ref());
            vars.and_then(|vars| vars.failing(ex)).map_or_else(String::new, |failing| failing.to_string())
        }
        MismatchReason::Header | MismatchReason::Query | MismatchReason::Protocol => {
            let matches = route.matching.filters.as_ref().and_then(|filters| filters.matches.as_ref());
            matches.map_or_else(String::new, |matches| matches.explain(ex))
        }
        MismatchReason::Host | MismatchReason::Path | MismatchReason::Shadowed => String::new(),
    }
}

fn methods(bits: u16) -> Vec<&'static str> {
    const ALL: [Method; 10] = [
        Method::Get,
        Method::Head,
        Method::Post,
        Method::Put,
        Method::Delete,
        Method::Connect,
        Method::Options,
        Method::Trace,
        Method::Patch,
        Method::Purge,
    ];
    ALL.iter().filter(|method| bits & method.bit() != 0).map(|method| method.name()).collect()
}
