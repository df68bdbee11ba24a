//! Which programs, in which versions, built how.

use sha2::{Digest, Sha256};

use super::{Part, debian};

/// The Go module that pins every program; embedded, so that a built launcher needs no source tree.
pub(super) const GO_MOD: &str = include_str!("../../pins/go.mod");
/// The digests of everything that [`GO_MOD`] names.
pub(super) const GO_SUM: &str = include_str!("../../pins/go.sum");

/// Counted up when the cache folder's layout or the way of building changes without any pin changing.
const LAYOUT: &str = "1";

/// `-trimpath` makes the result independent of the folder it is built in; no VCS stamp, as that folder is in none.
pub(super) const BUILD_FLAGS: [&str; 2] = ["-trimpath", "-buildvcs=false"];

/// One program that is compiled from the pinned module.
#[derive(Debug)]
pub(super) struct Program {
    /// Its file name in `bin/`.
    pub(super) name: &'static str,
    /// The Go package.
    pub(super) package: &'static str,
    /// Which part it belongs to.
    part: Part,
    /// Seconds that it took on two cores when built in this order with an empty cache.
    pub(super) cold_seconds: u64,
}

/// In the order of building: kube-apiserver first, since its packages are most of what the others need too.
const PROGRAMS: [Program; 9] = [
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
    program(Part::Kwok, "kwok", "sigs.k8s.io/kwok/cmd/kwok", 84),
    program(Part::Helm, "helm", "helm.sh/helm/v4/cmd/helm", 30),
];

const fn program(part: Part, name: &'static str, package: &'static str, cold_seconds: u64) -> Program {
    Program { name, package, part, cold_seconds }
}

/// The programs of `parts`, in the order of building.
pub(super) fn programs(parts: &[Part]) -> impl Iterator<Item = &'static Program> {
    static ALL: [Program; 9] = PROGRAMS;
    ALL.iter().filter(move |p| parts.contains(&p.part))
}

/// The version of `module` in [`GO_MOD`], such as `v1.36.3`; empty if it isn't required there.
pub(super) fn version(module: &str) -> &'static str {
    GO_MOD
        .lines()
        .map(str::split_whitespace)
        .find_map(|mut words| (words.next() == Some(module)).then(|| words.next()).flatten())
        .unwrap_or_default()
}

/// The `go 1.x.y` line of [`GO_MOD`].
pub(super) fn go_version() -> &'static str {
    version("go")
}

/// The `-ldflags` that strip debug information and stamp the versions: a Kubernetes program without a stamp says
/// `v0.0.0-master`, which Helm and version-skew checks refuse.
pub(super) fn ldflags() -> String {
    let kubernetes = version("k8s.io/kubernetes");
    let minor = kubernetes.split('.').nth(1).unwrap_or_default();
    let stamp = "k8s.io/component-base/version.git";
    format!(
        "-s -w -X {stamp}Version={kubernetes} -X {stamp}Major=1 -X {stamp}Minor={minor} \
         -X helm.sh/helm/v4/internal/version.version={}",
        version("helm.sh/helm/v4")
    )
}

/// A short digest over everything that decides what ends up in the cache folder.
pub(super) fn key() -> String {
    let mut hash = Sha256::new();
    let flags = BUILD_FLAGS.join(" ");
    let packages = debian::package_names().collect::<Vec<_>>().join(" ");
    for piece in [LAYOUT, GO_MOD, GO_SUM, &flags, &ldflags(), &packages] {
        hash.update((piece.len() as u64).to_le_bytes());
        hash.update(piece);
    }
    hash.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}
