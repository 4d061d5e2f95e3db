//! The store against real clusters of etcd.

mod cluster;
mod faults;
mod history;
mod partitions;
mod proxy;
mod secure;
mod store;
