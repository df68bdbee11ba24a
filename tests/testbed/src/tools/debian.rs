//! The distribution's packages for a real node, unpacked without installing them.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use tokio::process::Command;

use super::golang::run;
use super::{Progress, Step, ToolsError, system};

pub(super) const STEP: &str = "unpack containerd, runc, CNI plugins, nft, iptables";
pub(super) const EXPECTED: Duration = Duration::from_secs(6);

/// Written last, so a folder without it is not complete.
const STAMP: &str = ".unpacked";

/// Always unpacked: a bed never touches the machine's own containerd.
const NODE: [&str; 4] = ["containerd", "runc", "containernetworking-plugins", "busybox-static"];
/// nft for kube-proxy, where the machine has none, with every library that it links but the C library.
const NFT: [&str; 11] = [
    "nftables",
    "libnftables1",
    "libnftnl11",
    "libmnl0",
    "libjansson4",
    "libxtables12",
    "libedit2",
    "libgmp10",
    "libtinfo6",
    "libbsd0",
    "libmd0",
];
/// iptables for kube-proxy, where the machine has none, with the libraries that the variant for nftables links. It isn't among the
/// names that the key is made of: a folder without it gets it, since the stamp tells what was unpacked.
const IPTABLES: [&str; 4] = ["iptables", "libxtables12", "libnftnl11", "libmnl0"];
/// The commands of it that kube-proxy runs: names of one program, which the package leaves to Debian's alternatives.
pub(super) const IPTABLES_COMMANDS: [&str; 6] =
    ["iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore"];
/// The one library of runc that a slim machine may lack.
const SECCOMP: &str = "libseccomp2";

/// The packages that the cache folder's key is made of.
pub(super) fn package_names() -> impl Iterator<Item = &'static str> {
    NODE.into_iter().chain(NFT).chain([SECCOMP])
}

/// Which of the optional packages this machine needs.
#[derive(Debug)]
struct Needs {
    nft: bool,
    iptables: bool,
    seccomp: bool,
}

impl Needs {
    fn of_this_machine() -> Self {
        let lacks = |program: &str| system::find(program).is_none();
        Self {
            nft: lacks("nft"),
            iptables: IPTABLES_COMMANDS.iter().any(|command| lacks(command)),
            seccomp: !system::has_library("libseccomp.so.2"),
        }
    }

    fn packages(&self) -> Vec<&'static str> {
        let mut packages = NODE.to_vec();
        packages.extend(NFT.iter().filter(|_| self.nft));
        packages.extend(IPTABLES.iter().filter(|_| self.iptables));
        packages.extend(self.seccomp.then_some(SECCOMP));
        packages.sort_unstable();
        packages.dedup();
        packages
    }
}

/// Whether the packages are there, and are those of this distribution, and none is wanting that the machine had when
/// they were unpacked.
pub(super) fn is_unpacked(dir: &Path) -> bool {
    let Ok(stamp) = std::fs::read_to_string(dir.join("deb").join(STAMP)) else {
        return false;
    };
    let mut lines = stamp.lines();
    let unpacked: Vec<&str> = lines.by_ref().skip(1).collect();
    let needed = Needs::of_this_machine().packages();
    stamp.lines().next() == Some(&system::distribution()) && needed.iter().all(|p| unpacked.contains(p))
}

/// Downloads and unpacks into `dir`/deb.
pub(super) async fn unpack(dir: &Path, progress: &Progress) -> Result<(), ToolsError> {
    let step = progress.step(STEP, None);
    let work = tempfile::Builder::new()
        .prefix("deb-")
        .tempdir_in(dir)
        .map_err(|e| ToolsError::io("create a folder for packages in", dir, e))?;
    let packages = Needs::of_this_machine().packages();
    if let Err(first) = download(work.path(), &packages, &step).await {
        // The lists are missing on a fresh image and stale on an old one: both are mended by reading them again.
        if !nix::unistd::geteuid().is_root() {
            return Err(first);
        }
        progress.note("the package lists are missing or old: running apt-get update once");
        update(&step).await?;
        download(work.path(), &packages, &step).await?;
    }
    let root = work.path().join("root");
    for archive in archives(work.path())? {
        step.detail(&archive.file_name().unwrap_or_default().to_string_lossy());
        let mut command = Command::new("dpkg-deb");
        command.arg("-x").arg(&archive).arg(&root);
        let shown = format!("dpkg-deb -x {} {}", archive.display(), root.display());
        run(command, "unpacking a package", &shown, "is the disk full? `df -h` tells", &step).await?;
    }
    name_iptables(&root)?;
    let stamp = std::iter::once(system::distribution()).chain(packages.iter().map(|&p| p.to_owned()));
    let stamp = stamp.collect::<Vec<_>>().join("\n");
    std::fs::write(root.join(STAMP), stamp).map_err(|e| ToolsError::io("write the stamp in", &root, e))?;

    let place = dir.join("deb");
    if place.exists() {
        std::fs::remove_dir_all(&place).map_err(|e| ToolsError::io("remove the old", &place, e))?;
    }
    std::fs::rename(&root, &place).map_err(|e| ToolsError::io("put in place", &place, e))?;
    step.done();
    Ok(())
}

/// Gives the commands of iptables their names, if it is there.
fn name_iptables(root: &Path) -> Result<(), ToolsError> {
    let programs = root.join("usr/sbin");
    if !programs.join("xtables-nft-multi").exists() {
        return Ok(());
    }
    for command in IPTABLES_COMMANDS {
        let link = programs.join(command);
        symlink("xtables-nft-multi", &link).map_err(|e| ToolsError::io("make the link", &link, e))?;
    }
    Ok(())
}

fn archives(dir: &Path) -> Result<Vec<std::path::PathBuf>, ToolsError> {
    let entries = std::fs::read_dir(dir).map_err(|e| ToolsError::io("list", dir, e))?;
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(|e| ToolsError::io("list", dir, e))?.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

async fn download(dir: &Path, packages: &[&str], step: &Step) -> Result<(), ToolsError> {
    let mut command = apt_get();
    command.arg("download").args(packages).current_dir(dir);
    let shown = format!("apt-get download {}", packages.join(" "));
    let advice = "if packages can't be found, run `apt-get update` as root; otherwise check the network";
    run(command, "downloading packages", &shown, advice, step).await
}

async fn update(step: &Step) -> Result<(), ToolsError> {
    let mut command = apt_get();
    command.arg("update");
    run(command, "reading the package lists", "apt-get update", "check the network and /etc/apt", step).await
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command.arg("-q").env("LC_ALL", "C").env("DEBIAN_FRONTEND", "noninteractive");
    if nix::unistd::geteuid().is_root() {
        // Otherwise apt warns that its own user may not write into our folder, and downloads as root all the same.
        command.args(["-o", "APT::Sandbox::User=root"]);
    }
    command
}
