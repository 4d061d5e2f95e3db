//! Staged routes and stream routes, with the routing table that serves them.

use std::sync::Arc;

use super::Table;
use crate::route::Route;
use crate::router::Router;
use crate::streams::{StreamRoute, StreamRouter};

/// A routing table of a snapshot.
pub(crate) trait RoutingTable {
    /// The compiled form of an object in this table.
    type Route;

    /// Adds a route, or replaces the one of the same id.
    fn insert(&mut self, route: &Arc<Self::Route>);

    /// Removes a route. The route must have the host and path patterns it was inserted with.
    fn remove(&mut self, route: &Self::Route);
}

impl RoutingTable for Router {
    type Route = Route;

    fn insert(&mut self, route: &Arc<Route>) {
        Router::insert(self, route);
    }

    fn remove(&mut self, route: &Route) {
        Router::remove(self, route);
    }
}

impl RoutingTable for StreamRouter {
    type Route = StreamRoute;

    fn insert(&mut self, route: &Arc<StreamRoute>) {
        StreamRouter::insert(self, route);
    }

    fn remove(&mut self, route: &StreamRoute) {
        StreamRouter::remove(self, route);
    }
}

/// A staged object and its route.
#[derive(Debug)]
pub(crate) struct RoutedObject<R, S> {
    /// The form that linking starts from.
    pub(crate) staged: S,
    /// The route as last linked, or as staged.
    route: Arc<R>,
    /// Whether the routing table contains `route`.
    is_routed: bool,
}

impl<R, S> RoutedObject<R, S> {
    pub(crate) fn route(&self) -> &Arc<R> {
        &self.route
    }
}

/// The staged objects of a kind, and the routing table with those that are linked and enabled.
///
/// The table finds a route by its patterns, so it must lose a route before the patterns of that route change.
#[derive(Debug, Default)]
pub(crate) struct RoutedObjects<T: RoutingTable, S> {
    objects: Table<Box<RoutedObject<T::Route, S>>>,
    table: T,
}

impl<T: RoutingTable, S> RoutedObjects<T, S> {
    pub(crate) fn new(table: T) -> RoutedObjects<T, S> {
        RoutedObjects { objects: Table::default(), table }
    }

    /// The routing table, for a snapshot.
    pub(crate) fn table(&self) -> &T {
        &self.table
    }

    pub(crate) fn table_mut(&mut self) -> &mut T {
        &mut self.table
    }

    pub(crate) fn get(&self, id: &str) -> Option<&RoutedObject<T::Route, S>> {
        self.objects.get(id).map(Box::as_ref)
    }

    /// Adds or replaces an object. It is not served until it is linked.
    pub(crate) fn insert(&mut self, id: Arc<str>, route: T::Route, staged: S) {
        self.unroute(&id);
        self.objects.insert(id, Box::new(RoutedObject { staged, route: Arc::new(route), is_routed: false }));
    }

    /// Takes an object out of the routing table; returns its staged form for changes before the next link.
    pub(crate) fn unroute(&mut self, id: &str) -> Option<&mut S> {
        let object = self.objects.get_mut(id)?;
        if std::mem::take(&mut object.is_routed) {
            self.table.remove(&object.route);
        }
        Some(&mut object.staged)
    }

    /// Removes an object.
    pub(crate) fn remove(&mut self, id: &str) -> Option<RoutedObject<T::Route, S>> {
        self.unroute(id)?;
        self.objects.remove(id).map(|object| *object)
    }

    /// Replaces the route of an object by its newly linked form, and serves it if it is enabled.
    pub(crate) fn link(&mut self, id: &str, route: T::Route, is_enabled: bool) {
        // Linking may change the hosts, by which the table finds the route.
        if self.unroute(id).is_none() {
            return;
        }
        let Some(object) = self.objects.get_mut(id) else { return };
        object.route = Arc::new(route);
        object.is_routed = is_enabled;
        if is_enabled {
            self.table.insert(&object.route);
        }
    }
}

#[cfg(test)]
mod tests;
