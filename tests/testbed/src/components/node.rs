//! A real node: containerd with runc and a CNI bridge, kubelet, kube-proxy.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use serde_json::json;

use super::{CLUSTER_DOMAIN, Component, Context, DNS_IP, local};
use podward_images::Image;

use crate::{
    cgroup,
    error::{During, TestClusterError},
    node_number::NodeNumber,
    probe::Health,
    process::Command,
    proxy_mode::ProxyMode,
    settings::NodeSettings,
    taint::Taint,
};

/// The addresses of the pods of all nodes.
const POD_CIDR: &str = "10.244.0.0/16";

/// The label of a node's zone.
const ZONE: &str = "topology.kubernetes.io/zone";

/// The socket of containerd. `/run` is private to the node.
const CONTAINERD: &str = "/run/containerd.sock";

const CONTAINERD_NAME: &str = "containerd";
const KUBELET: &str = "kubelet";
const KUBE_PROXY: &str = "kube-proxy";

/// Returns the image of the container that holds a pod's namespaces.
pub(crate) fn sandbox(context: Context<'_>) -> Image {
    Image::pause(&context.tools.bin("busybox"))
}

/// Returns the health endpoint of a program of a node, by its name. Returns `None` for other names.
pub(crate) fn health(name: &str) -> Option<Health> {
    match name {
        CONTAINERD_NAME => Some(local(1338, false, "/v1/metrics")),
        KUBELET => Some(local(10248, false, "/healthz")),
        KUBE_PROXY => Some(local(10256, false, "/livez")),
        _ => None,
    }
}

/// The files of a node.
#[derive(Clone, Copy)]
struct Files<'a> {
    context: Context<'a>,
    node: NodeNumber,
}

impl Files<'_> {
    fn path(self, name: &str) -> PathBuf {
        self.node.folder(self.context.dir).join(name)
    }

    fn write(self, name: &str, text: &str) -> Result<String, TestClusterError> {
        let path = self.path(name);
        let parent = path.parent().unwrap_or(self.context.dir);
        let made = fs::create_dir_all(parent).and_then(|()| fs::write(&path, text));
        made.during(|| format!("write {}", path.display()))?;
        Ok(path.display().to_string())
    }
}

/// Returns the container runtime.
pub(crate) fn containerd(context: Context<'_>, node: NodeNumber) -> Result<Component, TestClusterError> {
    let files = Files { context, node };
    let file = files.write("containerd.toml", &containerd_config(files))?;
    files.write("cni/net.d/10-cluster.conflist", &format!("{:#}", cni_config(files)))?;
    let command = context.command(CONTAINERD_NAME).args(["--config".to_owned(), file]);
    component(context, node, command)
}

/// Returns the configuration in version 2 of the format. containerd 1.6 and later read it, and containerd 2 converts
/// it.
fn containerd_config(files: Files<'_>) -> String {
    let context = files.context;
    let quote = |path: &Path| format!("{:?}", path.display().to_string());
    format!(
        r#"version = 2
root = {root}
state = {state}
[grpc]
  address = "{CONTAINERD}"
[metrics]
  address = "127.0.0.1:1338"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{sandbox}"
  disable_apparmor = true
  # Without CAP_SYS_RESOURCE runc can't lower oom_score_adj.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        BinaryName = {runc}
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = {cni}
    conf_dir = {conf}
"#,
        sandbox = sandbox(context).name(),
        root = quote(&files.path("containerd/root")),
        state = quote(&files.path("containerd/state")),
        runc = quote(&context.tools.bin("runc")),
        cni = quote(&context.tools.cni_dir()),
        conf = quote(&files.path("cni/net.d")),
    )
}

fn cni_config(files: Files<'_>) -> serde_json::Value {
    json!({
        "cniVersion": "1.0.0",
        "name": "cluster",
        "plugins": [
            {
                "type": "bridge",
                "bridge": "cni0",
                "isGateway": true,
                "ipMasq": false,
                "hairpinMode": true,
                "ipam": {
                    "type": "host-local",
                    "dataDir": files.path("cni/ipam"),
                    "ranges": [[{"subnet": files.node.pod_cidr()}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": true}},
        ],
    })
}

/// Loads an OCI archive into containerd.
pub(crate) fn import(context: Context<'_>, archive: &Path) -> Command {
    ctr(context, "import").args(["images", "import"]).arg(archive.display().to_string())
}

/// Sends a signal to the first process of a container.
pub(crate) fn signal(context: Context<'_>, container: &str, signal: i32) -> Command {
    ctr(context, "signal").args(["task", "kill", "--signal", &signal.to_string(), container])
}

fn ctr(context: Context<'_>, name: &str) -> Command {
    Command::new(name, context.tools.bin("ctr")).args(["-a", CONTAINERD, "-n", "k8s.io"])
}

/// Returns the kubelet. With `dns`, its pods use the cluster DNS. Without it they have no DNS server, so that lookups
/// fail at once; they would time out if the server's address did not answer.
pub(crate) fn kubelet(
    context: Context<'_>,
    node: NodeNumber,
    settings: &NodeSettings,
    dns: bool,
) -> Result<Component, TestClusterError> {
    let (files, name) = (Files { context, node }, node.name());
    let resolv = files.write("resolv.conf", "")?;
    let taints = settings
        .taints
        .iter()
        .map(|Taint { key, value, effect }| json!({"key": key, "value": value, "effect": effect}));
    let mut config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": node.ip(),
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": context.pki("ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": context.pki(&format!("{name}.crt")),
        "tlsPrivateKeyFile": context.pki(&format!("{name}.key")),
        "containerRuntimeEndpoint": format!("unix://{CONTAINERD}"),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroup::path_of(&context.record.id, node),
        "failCgroupV1": false,
        "failSwapOn": false,
        "makeIPTablesUtilChains": false,
        "resolvConf": resolv,
        // The pods' logs are in the folder of the other logs, so that they are kept together.
        "podLogsDir": context.record.logs.join(node.own("pods")),
        "volumePluginDir": files.path("kubelet/volplugins"),
        "healthzBindAddress": "127.0.0.1",
        "healthzPort": 10248,
        // The machine's disk and memory are shared: evict late, and collect no images.
        "evictionHard": {
            "memory.available": "50Mi",
            "nodefs.available": "1%",
            "nodefs.inodesFree": "1%",
            "imagefs.available": "1%",
        },
        "imageGCHighThresholdPercent": 100,
        "imageMinimumGCAge": "24h",
        "enforceNodeAllocatable": ["pods"],
        "localStorageCapacityIsolation": true,
        "registerNode": true,
        "registerWithTaints": taints.collect::<Vec<_>>(),
        "nodeStatusUpdateFrequency": "5s",
        "nodeLeaseDurationSeconds": 20,
        "syncFrequency": "10s",
        "serializeImagePulls": false,
        "shutdownGracePeriod": "0s",
    });
    if dns {
        config["clusterDNS"] = json!([DNS_IP]);
        config["clusterDomain"] = json!(CLUSTER_DOMAIN);
    }
    let config = files.write("kubelet.yaml", &format!("{config:#}"))?;
    let mut command = context.command(KUBELET).args([
        format!("--config={config}"),
        format!("--kubeconfig={}", context.pki(&format!("{name}.kubeconfig"))),
        format!("--root-dir={}", files.path("kubelet").display()),
        format!("--cert-dir={}", files.path("kubelet/pki").display()),
        format!("--hostname-override={name}"),
        format!("--node-ip={}", node.ip()),
        "--v=2".to_owned(),
    ]);
    if let Some(zone) = &settings.zone {
        command = command.arg(format!("--node-labels={ZONE}={zone}"));
    }
    component(context, node, command)
}

/// Returns kube-proxy.
pub(crate) fn kube_proxy(
    context: Context<'_>,
    node: NodeNumber,
    mode: ProxyMode,
) -> Result<Component, TestClusterError> {
    let files = Files { context, node };
    let config = json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": mode.as_str(),
        "clientConnection": {"kubeconfig": context.pki(&format!("{}.kubeconfig", node.own("proxy")))},
        "clusterCIDR": POD_CIDR,
        "hostnameOverride": node.name(),
        // The size of the table cannot be set in a network namespace.
        "conntrack": {"maxPerCore": 0, "min": 0},
        "healthzBindAddress": "127.0.0.1:10256",
        // Pods can read the metrics, too. By default only processes of the node can.
        "metricsBindAddress": "0.0.0.0:10249",
        // Without node ports on the loopback address. They need a sysctl that cannot be set everywhere.
        "iptables": {"minSyncPeriod": "100ms", "syncPeriod": "30s", "localhostNodePorts": false},
        "nftables": {"minSyncPeriod": "100ms", "syncPeriod": "30s"},
    });
    let config = files.write("kube-proxy.yaml", &format!("{config:#}"))?;
    let mut command = context.command(KUBE_PROXY).arg(format!("--config={config}"));
    if let Some(extensions) = context.tools.iptables_extensions() {
        command = command.env("XTABLES_LIBDIR", extensions.display().to_string());
    }
    component(context, node, command)
}

/// Returns a program of a node.
fn component(
    context: Context<'_>,
    node: NodeNumber,
    command: Command,
) -> Result<Component, TestClusterError> {
    let health = health(&command.name).ok_or_else(|| {
        TestClusterError::Unsupported(format!("nothing is known about the health of {}", command.name))
    })?;
    Ok(Component { node, command: with_libraries(context, command), health })
}

/// Unpacked programs find their libraries in the folder they were unpacked to.
fn with_libraries(context: Context<'_>, command: Command) -> Command {
    let text = |value: OsString| value.to_string_lossy().into_owned();
    match context.tools.library_path() {
        Some(path) => command.env("LD_LIBRARY_PATH", text(path)),
        None => command,
    }
}
