//! Who watches a look-up, and why candidates lost.

use yumen_plugin::{ConditionExpr, Exchange, Method};

use crate::route::Route;

/// Why a route did not get a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MismatchReason {
    /// None of its hosts is the request's.
    Host,
    /// None of its paths is the request's.
    Path,
    /// The method is not among its methods.
    Method,
    /// The client's address is in none of its blocks.
    RemoteAddr,
    /// Its `vars` do not hold.
    Vars,
    /// Another route with a closer host or path, or a higher priority, came first.
    Shadowed,
}

/// Watches a look-up. Serving passes `()`, which is compiled away.
pub trait MatchObserver {
    /// Whether the look-up goes on after the winner, to tell what it shadowed.
    const WATCHES: bool;

    /// Told of each candidate that lost, in the order they were looked at. The exchange is as it was
    /// for that candidate, path parameters included.
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

/// Stops where only the body can tell whether a candidate is the request's route.
#[derive(Default)]
pub(super) struct BodyNeedObserver {
    has_stopped: bool,
}

impl MatchObserver for BodyNeedObserver {
    const WATCHES: bool = false;

    #[inline]
    fn candidate(&mut self, _route: &Route, _lost: MismatchReason, _ex: &Exchange<'_>) {}

    fn eval(&mut self, vars: &ConditionExpr, ex: &Exchange<'_>) -> Option<bool> {
        let held = vars.eval_before_body(ex);
        self.has_stopped = held.is_none();
        held
    }

    #[inline]
    fn has_stopped(&self) -> bool {
        self.has_stopped
    }
}

/// Writes down why each candidate lost.
#[derive(Debug, Default)]
pub struct MatchTrace {
    /// Candidates by path and host first, then all other routes.
    pub lost: Vec<RouteMismatch>,
}

/// A route that did not get a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteMismatch {
    /// Its id.
    pub id: Box<str>,
    /// Why.
    pub lost: MismatchReason,
    /// What it asks for and what was found, where its filters decided.
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
            let asked = String::from_utf8_lossy(ex.request.method_name());
            format!("the method is {asked}, allowed are {}", methods(route.matching.methods).join(", "))
        }
        MismatchReason::RemoteAddr => {
            format!("the client's address {} is not among its remote_addrs", ex.remote_ip)
        }
        MismatchReason::Vars => {
            let vars = route.matching.filters.as_ref().and_then(|filters| filters.vars.as_ref());
            vars.and_then(|vars| vars.failing(ex)).map_or_else(String::new, |failing| failing.to_string())
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
