//! Unpacks the distribution's packages for a real node, without installing them.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use tokio::process::Command;

use super::command::run;
use super::error::ToolsError;
use super::progress::{Progress, Step};
use super::system::{self, IPTABLES_COMMANDS};

pub(super) const STEP: &str = "unpack containerd, runc, CNI plugins, nft, iptables";
pub(super) const EXPECTED: Duration = Duration::from_secs(6);

/// The file that is written last. A folder without it is incomplete.
const STAMP: &str = ".unpacked";

/// The packages that are always unpacked. A cluster never uses the machine's own containerd.
const NODE: [&str; 4] = ["containerd", "runc", "containernetworking-plugins", "busybox-static"];
/// nft for kube-proxy, for machines without it, with every library that it links except the C library.
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
/// iptables for kube-proxy, for machines without it, with the libraries of the nftables variant. These names are not
/// part of the folder's key: the stamp lists what was unpacked, and iptables is added to a folder without it.
const IPTABLES: [&str; 4] = ["iptables", "libxtables12", "libnftnl11", "libmnl0"];
/// The only library of runc that a minimal machine may lack.
const SECCOMP: &str = "libseccomp2";

/// Returns the packages that are part of the cache folder's key.
pub(super) fn package_names() -> impl Iterator<Item = &'static str> {
    NODE.into_iter().chain(NFT).chain([SECCOMP])
}

/// The optional packages that this machine needs.
#[derive(Debug)]
struct LibraryNeeds {
    nft: bool,
    iptables: bool,
    seccomp: bool,
}

impl LibraryNeeds {
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

/// Returns whether the packages are unpacked, come from this distribution, and include everything that the machine
/// has lost since.
pub(super) fn is_unpacked(dir: &Path) -> bool {
    let Ok(stamp) = std::fs::read_to_string(dir.join("deb").join(STAMP)) else {
        return false;
    };
    let mut lines = stamp.lines();
    let unpacked: Vec<&str> = lines.by_ref().skip(1).collect();
    let needed = LibraryNeeds::of_this_machine().packages();
    stamp.lines().next() == Some(&system::distribution()) && needed.iter().all(|p| unpacked.contains(p))
}

/// Downloads the packages and unpacks them into `dir`/deb.
pub(super) async fn unpack(dir: &Path, progress: &Progress) -> Result<(), ToolsError> {
    let step = progress.step(STEP, None);
    let work = tempfile::Builder::new()
        .prefix("deb-")
        .tempdir_in(dir)
        .map_err(|e| ToolsError::io("create a folder for packages in", dir, e))?;
    let packages = LibraryNeeds::of_this_machine().packages();
    if let Err(first) = download(work.path(), &packages, &step).await {
        // The package lists are missing on a new image and outdated on an old one. Updating them fixes both.
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

/// Creates the commands of iptables, if iptables was unpacked.
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
        // Otherwise apt warns that its own user may not write into the folder, and downloads as root anyway.
        command.args(["-o", "APT::Sandbox::User=root"]);
    }
    command
}
