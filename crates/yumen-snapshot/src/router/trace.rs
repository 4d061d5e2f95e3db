//! Who watches a look-up, and why candidates lost.

use crate::Route;

/// Why a route did not get a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lost {
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
pub trait Witness {
    /// Whether the look-up goes on after the winner, to tell what it shadowed.
    const WATCHES: bool;

    /// Told of each candidate that lost, in the order they were looked at.
    fn candidate(&mut self, route: &Route, lost: Lost);
}

impl Witness for () {
    const WATCHES: bool = false;

    #[inline]
    fn candidate(&mut self, _route: &Route, _lost: Lost) {}
}

/// Writes down why each candidate lost.
#[derive(Debug, Default)]
pub struct Trace {
    /// Route ids with the reason, candidates by path and host first.
    pub lost: Vec<(Box<str>, Lost)>,
}

impl Witness for Trace {
    const WATCHES: bool = true;

    fn candidate(&mut self, route: &Route, lost: Lost) {
        self.lost.push((route.info.id.clone(), lost));
    }
}
