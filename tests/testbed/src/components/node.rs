//! A real node: containerd with runc and a CNI bridge, kubelet, kube-proxy.

use std::{ffi::OsString, fs, path::Path};

use serde_json::json;

use super::{CLUSTER_DOMAIN, Component, Context, DNS_IP, NODE_IP, NODE_NAME, local};
use podward_images::Image;

use crate::{
    cgroup,
    error::{During, TestClusterError},
    process::Command,
    proxy_mode::ProxyMode,
};

const POD_CIDR: &str = "10.244.0.0/24";

/// The socket of containerd. `/run` is private to the cluster.
const CONTAINERD: &str = "/run/containerd.sock";

/// Returns the image of the container that holds a pod's namespaces.
pub(crate) fn sandbox(context: Context<'_>) -> Image {
    Image::pause(&context.tools.bin("busybox"))
}

/// Returns the container runtime.
pub(crate) fn containerd(context: Context<'_>) -> Result<Component, TestClusterError> {
    let config = containerd_config(context);
    let file = write(context, "containerd.toml", &config)?;
    write(context, "cni/net.d/10-cluster.conflist", &format!("{:#}", cni_config(context)))?;
    let command = context.command("containerd").args(["--config".to_owned(), file]);
    let metrics = local(1338, false, "/v1/metrics");
    Ok(Component { command: with_libraries(context, command), health: metrics })
}

/// Returns the configuration in version 2 of the format. containerd 1.6 and later read it, and containerd 2 converts
/// it.
fn containerd_config(context: Context<'_>) -> String {
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
        root = quote(&context.path("containerd/root")),
        state = quote(&context.path("containerd/state")),
        runc = quote(&context.tools.bin("runc")),
        cni = quote(&context.tools.cni_dir()),
        conf = quote(&context.path("cni/net.d")),
    )
}

fn cni_config(context: Context<'_>) -> serde_json::Value {
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
                    "dataDir": context.path("cni/ipam"),
                    "ranges": [[{"subnet": POD_CIDR}]],
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
pub(crate) fn kubelet(context: Context<'_>, dns: bool) -> Result<Component, TestClusterError> {
    let resolv = write(context, "resolv.conf", "")?;
    let mut config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": NODE_IP,
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": context.pki("ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": context.pki("node1.crt"),
        "tlsPrivateKeyFile": context.pki("node1.key"),
        "containerRuntimeEndpoint": format!("unix://{CONTAINERD}"),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroup::path(&context.record.id),
        "failCgroupV1": false,
        "failSwapOn": false,
        "makeIPTablesUtilChains": false,
        "resolvConf": resolv,
        // The pods' logs are in the folder of the other logs, so that they are kept together.
        "podLogsDir": context.record.logs.join("pods"),
        "volumePluginDir": context.path("kubelet/volplugins"),
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
    let config = write(context, "kubelet.yaml", &format!("{config:#}"))?;
    let command = context.command("kubelet").args([
        format!("--config={config}"),
        format!("--kubeconfig={}", context.pki("node1.kubeconfig")),
        format!("--root-dir={}", context.path("kubelet").display()),
        format!("--cert-dir={}", context.path("kubelet/pki").display()),
        format!("--hostname-override={NODE_NAME}"),
        format!("--node-ip={NODE_IP}"),
        "--v=2".to_owned(),
    ]);
    Ok(Component { command: with_libraries(context, command), health: local(10248, false, "/healthz") })
}

/// Returns kube-proxy.
pub(crate) fn kube_proxy(context: Context<'_>, mode: ProxyMode) -> Result<Component, TestClusterError> {
    let config = json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": mode.as_str(),
        "clientConnection": {"kubeconfig": context.pki("proxy.kubeconfig")},
        "clusterCIDR": POD_CIDR,
        "hostnameOverride": NODE_NAME,
        // The size of the table cannot be set in a network namespace.
        "conntrack": {"maxPerCore": 0, "min": 0},
        "healthzBindAddress": "127.0.0.1:10256",
        // Pods can read the metrics, too. By default only processes of the node can.
        "metricsBindAddress": "0.0.0.0:10249",
        // Without node ports on the loopback address. They need a sysctl that cannot be set everywhere.
        "iptables": {"minSyncPeriod": "100ms", "syncPeriod": "30s", "localhostNodePorts": false},
        "nftables": {"minSyncPeriod": "100ms", "syncPeriod": "30s"},
    });
    let config = write(context, "kube-proxy.yaml", &format!("{config:#}"))?;
    let mut command = context.command("kube-proxy").arg(format!("--config={config}"));
    if let Some(extensions) = context.tools.iptables_extensions() {
        command = command.env("XTABLES_LIBDIR", extensions.display().to_string());
    }
    Ok(Component { command: with_libraries(context, command), health: local(10256, false, "/livez") })
}

/// Unpacked programs find their libraries in the folder they were unpacked to.
fn with_libraries(context: Context<'_>, command: Command) -> Command {
    let text = |value: OsString| value.to_string_lossy().into_owned();
    match context.tools.library_path() {
        Some(path) => command.env("LD_LIBRARY_PATH", text(path)),
        None => command,
    }
}

fn write(context: Context<'_>, name: &str, text: &str) -> Result<String, TestClusterError> {
    let path = context.path(name);
    let parent = path.parent().unwrap_or(context.dir);
    let made = fs::create_dir_all(parent).and_then(|()| fs::write(&path, text));
    made.during(|| format!("write {}", path.display()))?;
    Ok(path.display().to_string())
}
