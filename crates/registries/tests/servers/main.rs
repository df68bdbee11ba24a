//! The clients against real servers.

mod common;
mod consul;
mod etcd;
mod eureka;
mod http;
mod nacos;
mod own_http;
mod zookeeper;
