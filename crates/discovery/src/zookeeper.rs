//! The options of a ZooKeeper.

use podward_api::registry_connection::{ZooKeeperConnection, ZooKeeperLayout};
use podward_registries::ZooKeeperOptions;

/// The protocol of Dubbo's URLs when a connection names none.
const PROTOCOL: &str = "dubbo";

pub(crate) fn options(zookeeper: ZooKeeperConnection) -> ZooKeeperOptions {
    use podward_registries::ZooKeeperLayout as Layout;
    let layout = match zookeeper.layout {
        ZooKeeperLayout::Curator => Layout::Curator,
        ZooKeeperLayout::DubboInterfaces => {
            Layout::DubboInterfaces { protocol: zookeeper.protocol.unwrap_or_else(|| PROTOCOL.to_owned()) }
        }
        ZooKeeperLayout::DubboApplications => Layout::DubboApplications,
    };
    ZooKeeperOptions { layout, base: zookeeper.base.unwrap_or_default() }
}
