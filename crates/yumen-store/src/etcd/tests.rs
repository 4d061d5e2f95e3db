//! The store against real etcd clusters.

mod cluster;
mod faults;
mod history;
mod partitions;
mod proxy;
mod secure;
mod store;
