//! The client of ZooKeeper against ZooKeeper.

mod applications;
mod faults;
mod interfaces;
mod other;

use anyhow::Result;
use podward_registries::{Connection, Instance, ZooKeeper, ZooKeeperLayout, ZooKeeperOptions};

use crate::common;

fn client(connection: &Connection, layout: ZooKeeperLayout) -> Result<ZooKeeper> {
    let options = ZooKeeperOptions { layout, base: String::new() };
    ZooKeeper::new(connection, &options).map_err(anyhow::Error::msg)
}

/// A weight that every layout stores.
fn instance(uid: &str, host: &str) -> Instance {
    Instance { weight: 1.0, ..common::instance(uid, host) }
}
