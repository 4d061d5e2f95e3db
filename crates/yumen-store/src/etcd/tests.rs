//! The store against real clusters of etcd.

mod cluster;
mod faults;
mod store;
