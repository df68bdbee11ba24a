//! The programs, their versions, and how they are built.

use sha2::{Digest, Sha256};

use super::debian;
use super::kubernetes::KubernetesPins;
use super::part::Part;

/// The module of CoreDNS. In the module of Kubernetes its dependencies would change those of Kubernetes. Shared dependencies have
/// the same versions in both modules, so that only CoreDNS's own packages are compiled for it.
pub(super) const COREDNS_MOD: &str = include_str!("../../pins/coredns/go.mod");
const COREDNS_SUM: &str = include_str!("../../pins/coredns/go.sum");
const COREDNS_MAIN: &str = include_str!("../../pins/coredns/main.go");
/// The module of Consul, whose dependencies are older than those of Kubernetes. Consul 1.20 and later need modules that are
/// not published.
const CONSUL_MOD: &str = include_str!("../../pins/consul/go.mod");
const CONSUL_SUM: &str = include_str!("../../pins/consul/go.sum");

/// The module of Prometheus, whose dependencies are newer than those of Kubernetes.
const PROMETHEUS_MOD: &str = include_str!("../../pins/prometheus/go.mod");
const PROMETHEUS_SUM: &str = include_str!("../../pins/prometheus/go.sum");

/// Changes when the layout of the cache folder or the way of building changes without a change of a pin.
const LAYOUT: &str = "1";

/// `-trimpath` makes the result independent of the folder of the build. The folder has no version control to stamp.
pub(super) const BUILD_FLAGS: [&str; 2] = ["-trimpath", "-buildvcs=false"];

/// The `-ldflags` that leave out debug information.
const STRIP: &str = "-s -w";

/// A Go module that pins programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Module {
    /// Kubernetes, etcd, kwok and Helm.
    Kubernetes,
    /// CoreDNS.
    CoreDns,
    /// Consul.
    Consul,
    /// Prometheus.
    Prometheus,
}

impl Module {
    /// Returns the names and contents of its files.
    pub(super) fn files(self) -> Vec<(&'static str, &'static str)> {
        let (go_mod, go_sum) = match self {
            Self::Kubernetes => (KubernetesPins::chosen().go_mod, KubernetesPins::chosen().go_sum),
            Self::CoreDns => (COREDNS_MOD, COREDNS_SUM),
            Self::Consul => (CONSUL_MOD, CONSUL_SUM),
            Self::Prometheus => (PROMETHEUS_MOD, PROMETHEUS_SUM),
        };
        let main = (self == Self::CoreDns).then_some(("main.go", COREDNS_MAIN));
        [("go.mod", go_mod), ("go.sum", go_sum)].into_iter().chain(main).collect()
    }

    /// Returns the `-ldflags` that strip debug information and stamp the versions. A Kubernetes program without a
    /// stamp reports `v0.0.0-master`, which Helm and version-skew checks reject.
    pub(super) fn ldflags(self) -> String {
        match self {
            Self::Kubernetes => {
                let pins = KubernetesPins::chosen();
                let kubernetes = pins.version("k8s.io/kubernetes");
                let minor = kubernetes.split('.').nth(1).unwrap_or_default();
                let stamp = "k8s.io/component-base/version.git";
                format!(
                    "{STRIP} -X {stamp}Version={kubernetes} -X {stamp}Major=1 -X {stamp}Minor={minor} \
                     -X helm.sh/helm/v4/internal/version.version={}",
                    pins.version("helm.sh/helm/v4")
                )
            }
            Self::CoreDns | Self::Consul | Self::Prometheus => STRIP.to_owned(),
        }
    }

    /// Returns the build tags. Of Prometheus's many ways to find targets, only that of Kubernetes is compiled.
    pub(super) fn tags(self) -> &'static str {
        match self {
            Self::Kubernetes | Self::CoreDns | Self::Consul => "",
            Self::Prometheus => "remove_all_sd,enable_kubernetes_sd",
        }
    }
}

/// One program that is compiled from a pinned module.
#[derive(Debug)]
pub(super) struct Program {
    /// The name of the program.
    pub(super) name: &'static str,
    /// The Go package.
    pub(super) package: &'static str,
    /// The module that pins it.
    pub(super) module: Module,
    /// The part that needs it.
    part: Part,
    /// The time to build it on two cores, in this order and with an empty cache, in seconds.
    pub(super) cold_seconds: u64,
}

/// The programs in the order of building. kube-apiserver is first, because the others need most of its packages.
static PROGRAMS: [Program; 12] = [
    program(Part::ControlPlane, "kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver", 247),
    program(
        Part::ControlPlane,
        "kube-controller-manager",
        "k8s.io/kubernetes/cmd/kube-controller-manager",
        84,
    ),
    program(Part::ControlPlane, "kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler", 7),
    program(Part::ControlPlane, "kubectl", "k8s.io/kubernetes/cmd/kubectl", 27),
    program(Part::ControlPlane, "etcd", "go.etcd.io/etcd/server/v3", 32),
    program(Part::Node, "kubelet", "k8s.io/kubernetes/cmd/kubelet", 34),
    program(Part::Node, "kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy", 19),
    Program { name: "coredns", package: ".", module: Module::CoreDns, part: Part::Dns, cold_seconds: 20 },
    program(Part::Kwok, "kwok", "sigs.k8s.io/kwok/cmd/kwok", 84),
    program(Part::Helm, "helm", "helm.sh/helm/v4/cmd/helm", 30),
    Program {
        name: "consul",
        package: "github.com/hashicorp/consul",
        module: Module::Consul,
        part: Part::Consul,
        cold_seconds: 270,
    },
    Program {
        name: "prometheus",
        package: "github.com/prometheus/prometheus/cmd/prometheus",
        module: Module::Prometheus,
        part: Part::Prometheus,
        cold_seconds: 240,
    },
];

const fn program(part: Part, name: &'static str, package: &'static str, cold_seconds: u64) -> Program {
    Program { name, package, module: Module::Kubernetes, part, cold_seconds }
}

impl Program {
    /// Returns its file name in `bin/`. The name of the folder identifies all programs except those with a module of their own,
    /// whose keys are in their file names: another version of CoreDNS does not rebuild the others.
    pub(super) fn file(&self) -> String {
        match self.module {
            Module::Kubernetes => self.name.to_owned(),
            Module::CoreDns | Module::Consul | Module::Prometheus => {
                let (flags, ldflags) = (BUILD_FLAGS.join(" "), self.module.ldflags());
                let files = self.module.files();
                let files = files.iter().map(|(_, text)| *text);
                // Without tags, the keys are those of before.
                let tags = Some(self.module.tags()).filter(|tags| !tags.is_empty());
                format!(
                    "{}-{}",
                    self.name,
                    digest(files.chain([flags.as_str(), &ldflags].into_iter().chain(tags)))
                )
            }
        }
    }
}

/// Returns the programs of `parts`, in the order of building.
pub(super) fn programs(parts: &[Part]) -> impl Iterator<Item = &'static Program> {
    PROGRAMS.iter().filter(move |p| parts.contains(&p.part))
}

/// Returns the file name in `bin/` of the program `name`, which may be a program of a package.
pub(super) fn file(name: &str) -> String {
    PROGRAMS.iter().find(|p| p.name == name).map_or_else(|| name.to_owned(), Program::file)
}

/// Returns a short digest of everything that determines the content of the cache folder, except modules of their own: see
/// [`Program::file`].
pub(super) fn key() -> String {
    let flags = BUILD_FLAGS.join(" ");
    let packages = debian::package_names().collect::<Vec<_>>().join(" ");
    let pins = KubernetesPins::chosen();
    digest([LAYOUT, pins.go_mod, pins.go_sum, &flags, &Module::Kubernetes.ldflags(), &packages])
}

fn digest<'a>(pieces: impl IntoIterator<Item = &'a str>) -> String {
    let mut hash = Sha256::new();
    for piece in pieces {
        hash.update((piece.len() as u64).to_le_bytes());
        hash.update(piece);
    }
    hash.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}
