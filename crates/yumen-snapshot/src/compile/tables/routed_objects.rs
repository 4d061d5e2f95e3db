//! Staged routes and stream routes, with the routing tables that serve them.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Table;
use crate::route::Route;
use crate::route::ScopeIds;
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

    /// Whether the table has no route.
    fn is_empty(&self) -> bool;

    /// A table of the same settings without routes.
    fn without_routes(&self) -> Self;

    /// The scopes that a route belongs to; empty for the listeners of the node's settings.
    fn scopes(route: &Self::Route) -> &[Arc<str>];
}

impl RoutingTable for Router {
    type Route = Route;

    fn insert(&mut self, route: &Arc<Route>) {
        Router::insert(self, route);
    }

    fn remove(&mut self, route: &Route) {
        Router::remove(self, route);
    }

    fn is_empty(&self) -> bool {
        Router::is_empty(self)
    }

    fn without_routes(&self) -> Router {
        Router::without_routes(self)
    }

    fn scopes(route: &Route) -> &[Arc<str>] {
        ScopeIds::list(&route.scopes)
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

    fn is_empty(&self) -> bool {
        StreamRouter::is_empty(self)
    }

    fn without_routes(&self) -> StreamRouter {
        StreamRouter::default()
    }

    fn scopes(route: &StreamRoute) -> &[Arc<str>] {
        ScopeIds::list(&route.scopes)
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

/// The staged objects of a kind, and the routing tables with those that are linked and enabled.
///
/// A table finds a route by its patterns, so it must lose a route before the patterns of that route change.
#[derive(Debug, Default)]
pub(crate) struct RoutedObjects<T: RoutingTable, S> {
    objects: Table<Box<RoutedObject<T::Route, S>>>,
    /// The routes without scopes.
    table: T,
    /// The routes of each scope, whether or not the scope exists: the order of arrival does not matter. No table is
    /// empty.
    scoped: Table<T>,
    /// Scopes whose table changed.
    touched: BTreeSet<Arc<str>>,
}

impl<T: RoutingTable, S> RoutedObjects<T, S> {
    pub(crate) fn new(table: T) -> RoutedObjects<T, S> {
        let (objects, scoped) = (Table::default(), Table::default());
        RoutedObjects { objects, table, scoped, touched: BTreeSet::new() }
    }

    /// The routing table without scopes, for a snapshot.
    pub(crate) fn table(&self) -> &T {
        &self.table
    }

    pub(crate) fn table_mut(&mut self) -> &mut T {
        &mut self.table
    }

    /// The routing table of a scope, for a snapshot.
    pub(crate) fn table_of(&self, scope: &str) -> T
    where
        T: Clone,
    {
        self.scoped.get(scope).cloned().unwrap_or_else(|| self.table.without_routes())
    }

    /// The scopes whose routing table changed since the last call.
    pub(crate) fn take_touched(&mut self) -> BTreeSet<Arc<str>> {
        std::mem::take(&mut self.touched)
    }

    pub(crate) fn get(&self, id: &str) -> Option<&RoutedObject<T::Route, S>> {
        self.objects.get(id).map(Box::as_ref)
    }

    /// Adds or replaces an object. It is not served until it is linked.
    pub(crate) fn insert(&mut self, id: Arc<str>, route: T::Route, staged: S) {
        self.unroute(&id);
        self.objects.insert(id, Box::new(RoutedObject { staged, route: Arc::new(route), is_routed: false }));
    }

    /// Takes an object out of its routing tables; returns its staged form for changes before the next link.
    pub(crate) fn unroute(&mut self, id: &str) -> Option<&mut S> {
        let object = self.objects.get_mut(id)?;
        if std::mem::take(&mut object.is_routed) {
            let scopes = T::scopes(&object.route);
            if scopes.is_empty() {
                self.table.remove(&object.route);
            }
            for scope in scopes {
                let Some(table) = self.scoped.get_mut(scope) else { continue };
                table.remove(&object.route);
                if table.is_empty() {
                    self.scoped.remove(scope);
                }
                self.touched.insert(scope.clone());
            }
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
        if !is_enabled {
            return;
        }
        let scopes = T::scopes(&object.route);
        if scopes.is_empty() {
            self.table.insert(&object.route);
        }
        for scope in scopes {
            let table = self.scoped.entry(scope.clone()).or_insert_with(|| self.table.without_routes());
            table.insert(&object.route);
            self.touched.insert(scope.clone());
        }
    }
}

#[cfg(test)]
mod tests;
