//! Prepares the namespaces, before anything runs in them.

use std::{
    fs,
    io::{Error, ErrorKind, Write},
    path::Path,
    process::{Command, Stdio},
};

use nix::mount::{MsFlags, mount};

use crate::{
    components::SECOND_API,
    error::{During, TestClusterError},
    node_number::NodeNumber,
    state::Layout,
};

/// The values that the kubelet sets. These sysctls are not namespaced, so the kubelet would change them for the whole
/// machine. In the cluster, files with these values take their place, so that the kubelet has nothing to write. From
/// `setupKernelTunables` in `pkg/kubelet/cm/container_manager_linux.go` of Kubernetes.
const KUBELET_SYSCTLS: [(&str, &str); 6] = [
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
];

/// The local ports of outbound connections in the cluster. By default, Linux assigns ports from 32768 to 60999 to
/// servers of the host that bind port 0, and [`TestCluster::expose`](crate::TestCluster::expose) may need the same port inside.
const OUTBOUND_PORTS: &str = "61000 65535";

const DEVICE_PLUGINS: &str = "/var/lib/kubelet/device-plugins";

/// Sets up loopback, and an interface with the node's address. Not every kernel has dummy devices; a veth pair with
/// both ends in this namespace has a carrier, too. The default route makes ClusterIPs routable, so that they reach
/// the address translation.
pub(crate) fn network(node: NodeNumber) -> Result<(), TestClusterError> {
    let node_ip = node.ip();
    let batch = format!(
        "link set lo up\n\
         link add node0 type veth peer name node0p\n\
         link set node0p up\n\
         addr add {node_ip}/24 dev node0\n\
         link set node0 up\n\
         route add default dev node0\n"
    );
    run_ip(&batch).during(|| "set up the cluster's network with `ip` (package iproute2)".to_owned())?;
    let forward = fs::write("/proc/sys/net/ipv4/ip_forward", "1");
    forward.during(|| "turn on IP forwarding in the cluster".to_owned())?;
    let ports = fs::write("/proc/sys/net/ipv4/ip_local_port_range", OUTBOUND_PORTS);
    ports.during(|| "set the ports of outbound connections in the cluster".to_owned())?;
    nix::unistd::sethostname(node.name()).during(|| "set the cluster's host name".to_owned())
}

/// Adds the address of the second API server.
pub(crate) fn second_api() -> Result<(), TestClusterError> {
    let added = run_ip(&format!("addr add {}/32 dev node0\n", SECOND_API.ip()));
    added.during(|| "add the address of the second API server with `ip`".to_owned())
}

/// Runs `ip` with these commands.
pub(super) fn run_ip(batch: &str) -> std::io::Result<()> {
    run_batch(&mut Command::new("ip"), batch)
}

/// Runs `ip` with these commands in the network namespace of the process `pid`.
pub(super) fn enter_and_run_ip(pid: u32, batch: &str) -> std::io::Result<()> {
    run_batch(Command::new("nsenter").args(["-t", &pid.to_string(), "-n", "--", "ip"]), batch)
}

fn run_batch(command: &mut Command, batch: &str) -> std::io::Result<()> {
    // The path of an ordinary user may lack the folder of `ip`.
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let mut ip = command.args(["-batch", "-"]).env("PATH", path).stdin(Stdio::piped()).spawn()?;
    if let Some(mut input) = ip.stdin.take() {
        input.write_all(batch.as_bytes())?;
    }
    let status = ip.wait()?;
    if status.success() { Ok(()) } else { Err(Error::other(format!("ip ended with {status}"))) }
}

/// Mounts private folders at the paths to which kubelet, containerd and CNI write.
pub(crate) fn mounts(layout: &Layout, node: NodeNumber) -> Result<(), TestClusterError> {
    let none: Option<&str> = None;
    let run = mount(Some("tmpfs"), "/run", Some("tmpfs"), MsFlags::MS_NOSUID, Some("mode=755"));
    run.during(|| "mount a private /run".to_owned())?;
    for dir in ["/run/netns", "/run/lock"] {
        fs::create_dir_all(dir).during(|| format!("make {dir}"))?;
    }
    let log = layout.dir.join(node.own("varlog"));
    fs::create_dir_all(&log).during(|| format!("make {}", log.display()))?;
    let bound = mount(Some(log.as_path()), "/var/log", none, MsFlags::MS_BIND, none);
    bound.during(|| "mount a private /var/log".to_owned())
}

/// Mounts a private folder for the socket of device plugins. Every kubelet removes what is there and listens there,
/// whatever `--root-dir` says: `DevicePluginPath` in `k8s.io/kubelet/pkg/apis/deviceplugin`. The mount needs the folder
/// on the machine, where it stays empty.
pub(crate) fn device_plugins(layout: &Layout, node: NodeNumber) -> Result<(), TestClusterError> {
    let none: Option<&str> = None;
    let own = layout.dir.join(node.own("device-plugins"));
    for dir in [own.as_path(), Path::new(DEVICE_PLUGINS)] {
        fs::create_dir_all(dir).during(|| format!("make {}", dir.display()))?;
    }
    let bound = mount(Some(own.as_path()), DEVICE_PLUGINS, none, MsFlags::MS_BIND, none);
    bound.during(|| format!("mount a private {DEVICE_PLUGINS}"))
}

/// See [`KUBELET_SYSCTLS`].
pub(crate) fn fixed_sysctls(layout: &Layout) -> Result<(), TestClusterError> {
    let none: Option<&str> = None;
    for (name, value) in KUBELET_SYSCTLS {
        let target = Path::new("/proc/sys").join(name);
        let file = layout.dir.join("sysctl").join(name.replace('/', "."));
        let made = fs::create_dir_all(layout.dir.join("sysctl"))
            .and_then(|()| fs::write(&file, format!("{value}\n")));
        made.during(|| format!("write {}", file.display()))?;
        match fs::metadata(&target) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            _ => {}
        }
        let bound = mount(Some(file.as_path()), &target, none, MsFlags::MS_BIND, none);
        bound.during(|| format!("hide {}", target.display()))?;
    }
    Ok(())
}
