//! etcd, kube-apiserver, kube-controller-manager and kube-scheduler.

use std::{
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
};

use super::{API, Component, Context, SECOND_API, SECOND_API_BEHIND, SERVICE_CIDR, local};
use crate::{
    error::{During, TestClusterError},
    launch::supervisor_program,
    probe::Health,
    process::Command,
};

const ETCD: &str = "http://127.0.0.1:2379";

/// The time without a sign of life after which a node of several counts as gone. Kubelets send one every 5 s. Tests
/// wait for it, so that it is shorter than the default, 50 s.
const NODE_GONE_AFTER: &str = "20s";

/// Logs what Podward does and what others write. Reads and watches of others would be most of the log.
const AUDIT_POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  userGroups: [system:serviceaccounts:podward-system]
- level: Metadata
  verbs: [create, update, patch, delete, deletecollection]
";

/// Returns etcd. It does not wait for the disk, because a cluster's data need not survive a crash.
pub(crate) fn etcd(context: Context<'_>) -> Component {
    let command = context
        .command("etcd")
        .arg(format!("--data-dir={}", context.path("etcd").display()))
        .arg("--unsafe-no-fsync")
        .args([format!("--listen-client-urls={ETCD}"), format!("--advertise-client-urls={ETCD}")])
        .args(["--listen-peer-urls=http://127.0.0.1:2380", "--log-level=warn"]);
    Component::control(command, local(2379, false, "/health"))
}

/// One of the API servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ApiServer {
    First,
    /// The one whose watches can lag.
    Second,
}

impl ApiServer {
    /// Returns the name of `stem`, a process or file, for this server.
    fn own(self, stem: &str) -> String {
        match self {
            Self::First => stem.to_owned(),
            Self::Second => format!("{stem}-2"),
        }
    }

    /// Returns the address on which it listens. With two servers each needs its own.
    fn listens_on(self, context: Context<'_>) -> IpAddr {
        match self {
            Self::First if context.record.api_servers == 1 => Ipv4Addr::UNSPECIFIED.into(),
            Self::First => API.ip(),
            Self::Second => SECOND_API_BEHIND.ip(),
        }
    }

    fn advertised(self) -> IpAddr {
        match self {
            Self::First => API.ip(),
            Self::Second => SECOND_API.ip(),
        }
    }
}

/// Returns an API server. It waits for etcd by itself. `audit_log` is the folder for its log of requests, if there is
/// one.
pub(crate) fn api_server(
    context: Context<'_>,
    which: ApiServer,
    audit_log: Option<&PathBuf>,
) -> Result<Component, TestClusterError> {
    let pki = |file| context.pki(file);
    let program = context.tools.bin("kube-apiserver");
    let mut command = Command::new(which.own("kube-apiserver"), program).args([
        format!("--etcd-servers={ETCD}"),
        format!("--advertise-address={}", which.advertised()),
        format!("--bind-address={}", which.listens_on(context)),
        format!("--secure-port={}", API.port()),
        format!("--client-ca-file={}", pki("ca.crt")),
        format!("--tls-cert-file={}", pki("apiserver.crt")),
        format!("--tls-private-key-file={}", pki("apiserver.key")),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        format!("--service-account-key-file={}", pki("sa.pub")),
        format!("--service-account-signing-key-file={}", pki("sa.key")),
        "--authorization-mode=Node,RBAC".to_owned(),
        "--enable-admission-plugins=NodeRestriction".to_owned(),
        format!("--service-cluster-ip-range={SERVICE_CIDR}"),
        format!("--kubelet-client-certificate={}", pki("kubelet-client.crt")),
        format!("--kubelet-client-key={}", pki("kubelet-client.key")),
        format!("--kubelet-certificate-authority={}", pki("ca.crt")),
        "--kubelet-preferred-address-types=InternalIP".to_owned(),
        format!("--requestheader-client-ca-file={}", pki("front-proxy-ca.crt")),
        "--requestheader-allowed-names=front-proxy-client".to_owned(),
        "--requestheader-username-headers=X-Remote-User".to_owned(),
        "--requestheader-group-headers=X-Remote-Group".to_owned(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
        format!("--proxy-client-cert-file={}", pki("front-proxy-client.crt")),
        format!("--proxy-client-key-file={}", pki("front-proxy-client.key")),
    ]);
    if let Some(logs) = audit_log {
        let log = logs.join(format!("{}.json", which.own("audit")));
        let policy = context.path("audit-policy.yaml");
        std::fs::write(&policy, AUDIT_POLICY).during(|| format!("write {}", policy.display()))?;
        command = command.args([
            format!("--audit-policy-file={}", policy.display()),
            format!("--audit-log-path={}", log.display()),
            // In megabytes. The log is never rotated while a test reads it.
            "--audit-log-maxsize=4096".to_owned(),
        ]);
    }
    let at = match which {
        ApiServer::First => API,
        ApiServer::Second => SECOND_API_BEHIND,
    };
    Ok(Component::control(command, Health { at, tls: true, path: "/readyz" }))
}

/// Returns the proxy before the second API server.
pub(crate) fn api_proxy(context: Context<'_>) -> Result<Component, TestClusterError> {
    let command = Command::new("kube-apiserver-2-proxy", supervisor_program()?);
    let command = command.arg("api-proxy").arg(context.dir.display().to_string());
    Ok(Component::control(command, Health { at: SECOND_API, tls: true, path: "/readyz" }))
}

/// Returns the controllers. They may send more requests a second than by default, so that tests do not wait for them.
pub(crate) fn controller_manager(context: Context<'_>) -> Component {
    let pki = |file| context.pki(file);
    let mut command = context
        .command("kube-controller-manager")
        .args(serving(context, "kcm"))
        .args([
            format!("--service-account-private-key-file={}", pki("sa.key")),
            format!("--root-ca-file={}", pki("ca.crt")),
            "--use-service-account-credentials=true".to_owned(),
        ])
        .args(["--kube-api-qps=200", "--kube-api-burst=400"]);
    if context.record.nodes > 1 {
        command = command.arg(format!("--node-monitor-grace-period={NODE_GONE_AFTER}"));
    }
    Component::control(command, local(10257, true, "/healthz"))
}

/// Returns the scheduler.
pub(crate) fn scheduler(context: Context<'_>) -> Component {
    let command = context
        .command("kube-scheduler")
        .args(serving(context, "scheduler"))
        .args(["--kube-api-qps=500", "--kube-api-burst=1000"]);
    Component::control(command, local(10259, true, "/healthz"))
}

/// Returns the flags that both programs share. `user` names the kubeconfig and the certificate.
fn serving(context: Context<'_>, user: &str) -> Vec<String> {
    let kubeconfig = context.pki(&format!("{user}.kubeconfig"));
    vec![
        format!("--kubeconfig={kubeconfig}"),
        format!("--authentication-kubeconfig={kubeconfig}"),
        format!("--authorization-kubeconfig={kubeconfig}"),
        format!("--tls-cert-file={}", context.pki(&format!("{user}.crt"))),
        format!("--tls-private-key-file={}", context.pki(&format!("{user}.key"))),
        "--leader-elect=false".to_owned(),
        "--bind-address=127.0.0.1".to_owned(),
    ]
}
