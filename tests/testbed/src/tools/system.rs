//! Finds programs and libraries of the machine.

use std::path::{Path, PathBuf};

/// The commands of iptables that kube-proxy runs. They are names of one program; Debian's alternatives create them.
pub(super) const IPTABLES_COMMANDS: [&str; 6] =
    ["iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore"];

/// Where a distribution keeps its CNI plugins (Debian, upstream's default, Fedora).
const CNI_DIRS: [&str; 3] = ["/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"];

/// Returns the folders that are searched for programs: `PATH`, then common folders that the `PATH` of an ordinary
/// user lacks.
pub(super) fn program_dirs() -> impl Iterator<Item = PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut dirs: Vec<PathBuf> = std::env::split_paths(&path).filter(|d| !d.as_os_str().is_empty()).collect();
    for extra in ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/go/bin"].map(PathBuf::from) {
        if !dirs.contains(&extra) {
            dirs.push(extra);
        }
    }
    dirs.into_iter()
}

/// Returns the program `name` of the machine.
pub(super) fn find(name: &str) -> Option<PathBuf> {
    program_dirs().map(|dir| dir.join(name)).find(|path| path.is_file())
}

/// Returns the machine's folder of CNI plugins, if it contains those that a cluster uses.
pub(super) fn cni_dir() -> Option<PathBuf> {
    let complete =
        |dir: &PathBuf| ["bridge", "host-local", "loopback", "portmap"].iter().all(|p| dir.join(p).exists());
    CNI_DIRS.into_iter().map(PathBuf::from).find(complete)
}

/// Returns whether the machine has all programs of a real node. This matters only if packages are not available:
/// clusters are tested with the unpacked packages.
pub(super) fn has_node_programs() -> bool {
    let packages = find("apt-get").is_some() && find("dpkg-deb").is_some();
    let programs = ["containerd", "containerd-shim-runc-v2", "ctr", "runc", "nft", "busybox"];
    let mut programs = programs.iter().chain(&IPTABLES_COMMANDS);
    !packages && cni_dir().is_some() && programs.all(|p| find(p).is_some())
}

/// Returns the library folders below `root` that have any library in them.
pub(super) fn library_dirs_under(root: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = ["usr/lib", "lib"]
        .into_iter()
        .filter_map(|lib| std::fs::read_dir(root.join(lib)).ok())
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|dir| {
            dir.is_dir() && dir.file_name().is_some_and(|n| n.to_string_lossy().contains("-linux-gnu"))
        })
        .collect();
    found.sort_unstable_by(|a, b| b.cmp(a));
    found
}

/// Returns whether the machine has the shared library `name`.
pub(super) fn has_library(name: &str) -> bool {
    let dirs = library_dirs_under(Path::new("/"));
    let plain = ["/usr/lib64", "/lib64", "/usr/lib", "/lib"].map(PathBuf::from);
    dirs.into_iter().chain(plain).any(|dir| dir.join(name).exists())
}

/// Returns the name and version of the distribution, such as `debian 12`. The packages of different distributions
/// differ.
pub(super) fn distribution() -> String {
    let text = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let field = |name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        value.unwrap_or("unknown").trim_matches('"').to_owned()
    };
    format!("{} {}", field("ID"), field("VERSION_ID"))
}
