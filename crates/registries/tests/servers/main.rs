//! The clients against real servers.

mod common;
mod consul;
mod etcd;
mod eureka;
mod http;
mod own_http;
mod zookeeper;
