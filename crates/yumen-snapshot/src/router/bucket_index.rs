//! An index over many routes of one path, by the value of the request field that most of them require.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::bucket::RoutePath;
use crate::route::{Route, ValueTest};

/// Positions of routes in a bucket, ascending.
#[derive(Debug)]
pub(super) struct BucketIndex {
    header: Box<str>,
    by_value: HashMap<Box<[u8]>, Vec<u32>, RandomState>,
    /// Routes that do not require a value of the field.
    others: Vec<u32>,
}

/// The fields of which a route requires a value.
fn required(route: &Route) -> impl Iterator<Item = (&str, &[u8])> {
    let matches = route.matching.filters.as_ref().and_then(|filters| filters.matches.as_ref());
    matches.into_iter().flat_map(|matches| &matches.headers).filter_map(|one| match &one.test {
        ValueTest::Equals(value) => Some((&*one.name, &**value)),
        ValueTest::Matches(..) | ValueTest::Absent => None,
    })
}

impl BucketIndex {
    /// An index over the routes; `None` if fewer than `min` require a value of one field.
    pub(super) fn of(route_paths: &[RoutePath], min: usize) -> Option<BucketIndex> {
        let mut counts: HashMap<String, usize, RandomState> = HashMap::default();
        for route_path in route_paths {
            for (name, _) in required(&route_path.route) {
                *counts.entry(name.to_ascii_lowercase()).or_default() += 1;
            }
        }
        // Of equal counts the lower name, so that the index does not depend on the order of the table.
        let most = counts.into_iter().max_by(|a, b| a.1.cmp(&b.1).then_with(|| b.0.cmp(&a.0)));
        let (header, _) = most.filter(|(_, count)| *count >= min)?;
        let mut by_value: HashMap<Box<[u8]>, Vec<u32>, RandomState> = HashMap::default();
        let mut others = Vec::new();
        for (at, route_path) in (0..).zip(route_paths) {
            let value = required(&route_path.route).find(|(name, _)| name.eq_ignore_ascii_case(&header));
            match value {
                Some((_, value)) => by_value.entry(value.into()).or_default().push(at),
                None => others.push(at),
            }
        }
        Some(BucketIndex { header: header.into(), by_value, others })
    }

    /// The name of the field.
    pub(super) fn header(&self) -> &str {
        &self.header
    }

    /// The positions of the routes that a request with this value can match, in the order of trial.
    pub(super) fn candidates<'i>(&'i self, value: Option<&[u8]>) -> impl Iterator<Item = usize> + use<'i> {
        let own = value.and_then(|value| self.by_value.get(value)).map_or(&[][..], Vec::as_slice);
        let (mut own, mut others) = (own.iter().peekable(), self.others.iter().peekable());
        std::iter::from_fn(move || {
            let is_own = match (own.peek(), others.peek()) {
                (Some(first), Some(second)) => first < second,
                (first, _) => first.is_some(),
            };
            let next = if is_own { own.next() } else { others.next() };
            next.map(|at| *at as usize)
        })
    }
}
