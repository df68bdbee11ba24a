//! The service-discovery-bridge.
#![forbid(unsafe_code)]
#![allow(dead_code, unused_imports)]
mod model;
