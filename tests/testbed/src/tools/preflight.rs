//! Finds all requirements that the machine lacks, each with the command to fix it.

use std::path::Path;
use std::process::{Command, Stdio};

use super::cache::{Tools, cache_root};
use super::kubernetes::KubernetesPins;
use super::part::Part;
use super::requirement::MissingRequirement;
use super::{debian, maven, pins, system};

/// The free space that a build with empty caches needs, in bytes: Go's build cache, module cache and the programs.
const BUILD_SPACE: u64 = 7 << 30;
/// Positions in a capability set (linux/capability.h).
const CAP_NET_ADMIN: u32 = 12;
const CAP_SYS_ADMIN: u32 = 21;

/// Returns everything that this machine lacks to build those of `parts` that are not cached, and to run a cluster of
/// them. `node` is true if the cluster has a real node.
pub fn preflight(parts: &[Part], node: bool) -> Vec<MissingRequirement> {
    let mut missing = match Tools::cached() {
        Ok(tools) => for_build(parts, &tools),
        Err(_) => vec![MissingRequirement::new(
            "a cache folder",
            "to keep the test cluster's programs",
            "export PODWARD_CACHE=/var/cache",
        )],
    };
    missing.extend(commands(node));
    missing.extend(privileges(node));
    if node {
        missing.extend(kernel());
        missing.extend(parts.contains(&Part::Dns).then(bridge_filter).flatten());
    }
    missing
}

/// Returns what is missing to build those of `parts` that are not in `tools`.
pub(super) fn for_build(parts: &[Part], tools: &Tools) -> Vec<MissingRequirement> {
    let mut missing = Vec::new();
    if pins::programs(parts).any(|p| !tools.has(p)) {
        missing.extend(go());
        missing.extend(space());
    }
    if parts.contains(&Part::Node) && !debian::is_unpacked(tools.dir()) && !system::has_node_programs() {
        let lacking: Vec<_> =
            ["apt-get", "dpkg-deb"].into_iter().filter(|p| system::find(p).is_none()).collect();
        if !lacking.is_empty() {
            missing.push(MissingRequirement::new(
                format!("{} (or containerd, ctr, runc, nft, iptables, busybox and the CNI plugins)", lacking.join(" and ")),
                "for a real node's container runtime",
                "on Debian and Ubuntu `apt-get install apt dpkg`; elsewhere install the programs named in brackets",
            ));
        }
    }
    let on_java: Vec<_> =
        maven::PARTS.iter().map(|(part, _)| *part).filter(|part| parts.contains(part)).collect();
    if !on_java.is_empty() {
        let needs_maven = on_java.iter().any(|part| !maven::is_fetched(tools.dir(), *part));
        let programs = [("java", true, "default-jre-headless"), ("mvn", needs_maven, "maven")];
        for (program, _, package) in programs.into_iter().filter(|it| it.1 && system::find(it.0).is_none()) {
            missing.push(MissingRequirement::new(
                program,
                "for Eureka and ZooKeeper, registries that the tests use",
                format!("on Debian and Ubuntu `apt-get install {package}`"),
            ));
        }
    }
    missing
}

fn go() -> Option<MissingRequirement> {
    let wanted = KubernetesPins::chosen().version("go");
    let fix = format!(
        "curl -L https://go.dev/dl/go{wanted}.linux-{}.tar.gz | sudo tar -C /usr/local -xz",
        match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        }
    );
    let why = "to build Kubernetes, etcd, CoreDNS, kwok and Helm from their modules";
    let Some(go) = system::find("go") else {
        return Some(MissingRequirement::new(format!("Go {wanted} or newer"), why, fix));
    };
    // `go version` may download another toolchain first. Only the installed one matters here.
    let env = |name: &str, toolchain: Option<&str>| {
        let mut command = Command::new(&go);
        command.args(["env", name]).current_dir("/").stdin(Stdio::null()).stderr(Stdio::null());
        if let Some(toolchain) = toolchain {
            command.env("GOTOOLCHAIN", toolchain);
        }
        let output = command.output().ok()?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let present = env("GOVERSION", Some("local")).unwrap_or_default();
    let present = present.trim_start_matches("go");
    if numbers(present) >= numbers(wanted) {
        return None;
    }
    // Since 1.21, Go downloads the toolchain that a module requires, unless that is disabled.
    if numbers(present) >= vec![1, 21] && env("GOTOOLCHAIN", None).is_some_and(|t| t != "local") {
        return None;
    }
    Some(MissingRequirement::new(format!("Go {wanted} or newer (Go {present} is installed)"), why, fix))
}

/// Returns `1.26.8` as numbers. A suffix such as `rc1` is ignored.
fn numbers(version: &str) -> Vec<u32> {
    version
        .split('.')
        .map_while(|piece| {
            let digits: String = piece.chars().take_while(char::is_ascii_digit).collect();
            digits.parse().ok()
        })
        .collect()
}

fn space() -> Option<MissingRequirement> {
    let root = cache_root().ok()?;
    let existing = root.ancestors().find(|dir| dir.exists())?;
    let stat = nix::sys::statvfs::statvfs(existing).ok()?;
    // The types of both fields differ between platforms.
    #[allow(clippy::useless_conversion)]
    let free = u64::from(stat.blocks_available()) * u64::from(stat.fragment_size());
    (free < BUILD_SPACE).then(|| {
        MissingRequirement::new(
            format!("{} GiB of free space at {}", BUILD_SPACE >> 30, existing.display()),
            "to build the test cluster's programs once",
            "free some, or set PODWARD_CACHE, GOCACHE and GOMODCACHE to folders on a larger disk",
        )
    })
}

fn commands(node: bool) -> Vec<MissingRequirement> {
    let mut wanted = vec![
        ("cc", "gcc libc6-dev", "to compile the cryptography that the services use"),
        ("ip", "iproute2", "to make the cluster's network"),
        ("unshare", "util-linux", "to make the cluster's namespaces"),
        ("nsenter", "util-linux", "to run commands in the cluster's network"),
    ];
    if node {
        wanted.push(("mount", "mount", "by the kubelet, for volumes"));
    }
    wanted
        .into_iter()
        .filter(|(program, ..)| system::find(program).is_none())
        .map(|(program, packages, why)| {
            MissingRequirement::new(program, why, format!("apt-get install --yes {packages}"))
        })
        .collect()
}

fn privileges(node: bool) -> Option<MissingRequirement> {
    if has_capability(CAP_SYS_ADMIN) && has_capability(CAP_NET_ADMIN) {
        return None;
    }
    if node {
        return Some(MissingRequirement::new(
            "root (CAP_SYS_ADMIN and CAP_NET_ADMIN)",
            "by a real node, which mounts file systems and makes cgroups",
            "sudo --preserve-env=PATH,HOME cargo xtask ..., or take the shape `simulated`, which needs no root",
        ));
    }
    let setting = |path: &str| std::fs::read_to_string(path).ok().and_then(|s| s.trim().parse::<u64>().ok());
    let refused = [
        (setting("/proc/sys/user/max_user_namespaces") == Some(0), "user.max_user_namespaces=65536"),
        (
            setting("/proc/sys/kernel/unprivileged_userns_clone") == Some(0),
            "kernel.unprivileged_userns_clone=1",
        ),
        (
            setting("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == Some(1),
            "kernel.apparmor_restrict_unprivileged_userns=0",
        ),
    ];
    let fix: Vec<_> = refused.into_iter().filter(|(refused, _)| *refused).map(|(_, fix)| fix).collect();
    (!fix.is_empty()).then(|| {
        MissingRequirement::new(
            "root or user namespaces",
            "to give a cluster namespaces of its own",
            format!("sudo sysctl -w {}, or run as root", fix.join(" ")),
        )
    })
}

fn has_capability(number: u32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let set = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).is_some_and(|set| set & (1 << number) != 0)
}

/// Returns the kernel features that a real node needs and that can be checked quickly.
fn kernel() -> Vec<MissingRequirement> {
    let mut missing = Vec::new();
    let filesystems = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    if !filesystems.lines().any(|line| line.split_whitespace().last() == Some("overlay")) && !loads("overlay")
    {
        missing.push(MissingRequirement::new(
            "overlayfs in the kernel",
            "by containerd, for images",
            "modprobe overlay",
        ));
    }
    let cgroup = Path::new("/sys/fs/cgroup");
    let write = nix::unistd::AccessFlags::W_OK;
    // Without root it is never writable, which another check reports.
    if has_capability(CAP_SYS_ADMIN) && nix::unistd::access(cgroup, write).is_err() {
        missing.push(MissingRequirement::new(
            "a writable /sys/fs/cgroup",
            "by the kubelet, for the pods' resources",
            "run outside of a container, or in one started with --privileged --cgroupns=host",
        ));
    }
    // The check uses the features in a network namespace that ends with the command, because no file reliably lists
    // built-in drivers.
    if has_capability(CAP_SYS_ADMIN)
        && let (Some(unshare), Some(_)) = (system::find("unshare"), system::find("ip"))
    {
        for (kind, arguments) in [("veth", "pw0 type veth peer name pw1"), ("bridge", "pw0 type bridge")] {
            let made = Command::new(&unshare)
                .args(["--net", "ip", "link", "add"])
                .args(arguments.split(' '))
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .is_ok_and(|status| status.success());
            if !made {
                missing.push(MissingRequirement::new(
                    format!("network devices of the kind {kind}"),
                    "to connect pods",
                    format!("modprobe {kind}"),
                ));
            }
        }
    }
    missing
}

/// Packets between pods of a node pass its bridge. If they do not pass the address translation there, the response of
/// a Service, such as the DNS, comes from an address that the pod did not send its request to.
fn bridge_filter() -> Option<MissingRequirement> {
    let there = Path::new("/proc/sys/net/bridge/bridge-nf-call-iptables").exists();
    (!there).then(|| {
        MissingRequirement::new(
            "br_netfilter in the kernel",
            "by pods that ask for names",
            "modprobe br_netfilter",
        )
    })
}

/// Returns whether the kernel can load `module`.
fn loads(module: &str) -> bool {
    let dry = system::find("modprobe")
        .map(|modprobe| Command::new(modprobe).args(["--dry-run", "--quiet", module]).status());
    dry.is_some_and(|status| status.is_ok_and(|s| s.success()))
}
