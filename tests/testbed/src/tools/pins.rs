//! The programs, their versions, and how they are built.

use sha2::{Digest, Sha256};

use super::debian;
use super::part::Part;

/// The Go module that pins every program but CoreDNS and Consul; embedded, as all pins are, so that a built launcher needs no
/// source tree.
pub(super) const GO_MOD: &str = include_str!("../../pins/go.mod");
/// The digests of everything that [`GO_MOD`] names.
const GO_SUM: &str = include_str!("../../pins/go.sum");
/// The module of CoreDNS. In [`GO_MOD`] its dependencies would change those of Kubernetes. Shared dependencies have
/// the same versions in both modules, so that only CoreDNS's own packages are compiled for it.
pub(super) const COREDNS_MOD: &str = include_str!("../../pins/coredns/go.mod");
const COREDNS_SUM: &str = include_str!("../../pins/coredns/go.sum");
const COREDNS_MAIN: &str = include_str!("../../pins/coredns/main.go");
/// The module of Consul, whose dependencies are older than those of Kubernetes. Consul 1.20 and later need modules that are
/// not published.
const CONSUL_MOD: &str = include_str!("../../pins/consul/go.mod");
const CONSUL_SUM: &str = include_str!("../../pins/consul/go.sum");

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
}

impl Module {
    /// Returns the names and contents of its files.
    pub(super) fn files(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Kubernetes => &[("go.mod", GO_MOD), ("go.sum", GO_SUM)],
            Self::CoreDns => &[("go.mod", COREDNS_MOD), ("go.sum", COREDNS_SUM), ("main.go", COREDNS_MAIN)],
            Self::Consul => &[("go.mod", CONSUL_MOD), ("go.sum", CONSUL_SUM)],
        }
    }

    /// Returns the `-ldflags` that strip debug information and stamp the versions. A Kubernetes program without a
    /// stamp reports `v0.0.0-master`, which Helm and version-skew checks reject.
    pub(super) fn ldflags(self) -> String {
        match self {
            Self::Kubernetes => {
                let kubernetes = version("k8s.io/kubernetes");
                let minor = kubernetes.split('.').nth(1).unwrap_or_default();
                let stamp = "k8s.io/component-base/version.git";
                format!(
                    "{STRIP} -X {stamp}Version={kubernetes} -X {stamp}Major=1 -X {stamp}Minor={minor} \
                     -X helm.sh/helm/v4/internal/version.version={}",
                    version("helm.sh/helm/v4")
                )
            }
            Self::CoreDns | Self::Consul => STRIP.to_owned(),
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
static PROGRAMS: [Program; 11] = [
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
];

const fn program(part: Part, name: &'static str, package: &'static str, cold_seconds: u64) -> Program {
    Program { name, package, module: Module::Kubernetes, part, cold_seconds }
}

impl Program {
    /// Returns its file name in `bin/`. The name of the folder identifies all programs except CoreDNS and Consul, whose own
    /// keys are in their file names: another version of CoreDNS does not rebuild the others.
    pub(super) fn file(&self) -> String {
        match self.module {
            Module::Kubernetes => self.name.to_owned(),
            Module::CoreDns | Module::Consul => {
                let (flags, ldflags) = (BUILD_FLAGS.join(" "), self.module.ldflags());
                let files = self.module.files().iter().map(|(_, text)| *text);
                format!("{}-{}", self.name, digest(files.chain([flags.as_str(), &ldflags])))
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

/// Returns the version of `module` in [`GO_MOD`], such as `v1.36.3`, or an empty string if it is not required there.
pub(super) fn version(module: &str) -> &'static str {
    GO_MOD
        .lines()
        .map(str::split_whitespace)
        .find_map(|mut words| (words.next() == Some(module)).then(|| words.next()).flatten())
        .unwrap_or_default()
}

/// Returns the `go 1.x.y` line of [`GO_MOD`].
pub(super) fn go_version() -> &'static str {
    version("go")
}

/// Returns a short digest of everything that determines the content of the cache folder, except CoreDNS and Consul: see
/// [`Program::file`].
pub(super) fn key() -> String {
    let flags = BUILD_FLAGS.join(" ");
    let packages = debian::package_names().collect::<Vec<_>>().join(" ");
    digest([LAYOUT, GO_MOD, GO_SUM, &flags, &Module::Kubernetes.ldflags(), &packages])
}

fn digest<'a>(pieces: impl IntoIterator<Item = &'a str>) -> String {
    let mut hash = Sha256::new();
    for piece in pieces {
        hash.update((piece.len() as u64).to_le_bytes());
        hash.update(piece);
    }
    hash.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}
