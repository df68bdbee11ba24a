//! The clients against real servers.

mod common;
mod consul;
mod etcd;
mod eureka;
mod fenced;
mod hostile;
mod http;
mod nacos;
mod own_http;
mod zookeeper;
