//! The programs that a bed runs, built once and kept in a cache folder.
//!
//! Nothing prebuilt is fetched from a vendor's site: Kubernetes, etcd, CoreDNS, kwok and Helm are compiled from the Go
//! modules that `pins/` names, and containerd, runc, the CNI plugins, busybox, nft and iptables are the distribution's packages,
//! unpacked but not installed. The folder's name is a digest over all pins but those of CoreDNS, whose digest is in its
//! file's name: so another pin is another folder or file, and neither ever changes its meaning.

mod debian;
mod error;
mod golang;
mod lock;
mod pins;
mod preflight;
mod progress;
mod system;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

pub use error::ToolsError;
pub use preflight::{Missing, preflight};
pub use progress::{Progress, Step};

/// A group of programs that is built, or not, as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl.
    ControlPlane,
    /// kubelet, kube-proxy, and the distribution's containerd, runc, CNI plugins, nft, iptables and busybox.
    Node,
    /// CoreDNS, for names of Services on a real node.
    Dns,
    /// kwok, for simulated nodes.
    Kwok,
    /// helm.
    Helm,
}

impl Part {
    /// Every part there is.
    pub const ALL: [Self; 5] = [Self::ControlPlane, Self::Node, Self::Dns, Self::Kwok, Self::Helm];
}

/// A cache folder with the programs of a bed.
///
/// Layout: `bin/` holds what was compiled, `deb/` what was unpacked from packages.
#[derive(Debug, Clone)]
pub struct Tools {
    dir: PathBuf,
}

impl Tools {
    /// Uses the folder `dir` as it is; nothing is checked or built.
    pub fn at(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// The cache folder of this version's pins, whether or not anything is in it yet: `podward/testbed/<key>` under
    /// `$PODWARD_CACHE`, `$XDG_CACHE_HOME` or `~/.cache`.
    ///
    /// # Errors
    /// When none of the three variables (or `$HOME`) is set.
    pub fn cached() -> Result<Self, ToolsError> {
        Ok(Self::at(cache_root()?.join(pins::key())))
    }

    /// Makes sure that all programs of `parts` are in the cache folder, and builds those that aren't.
    ///
    /// Everything is built beside its final place and renamed, so a killed build leaves nothing half done. Two
    /// processes never build at once: the second waits, says for whom, and then uses what the first has built. With
    /// everything there this looks at a dozen files and starts no process.
    ///
    /// # Errors
    /// [`ToolsError::Missing`] with everything that the machine lacks for the build, before anything is built; any
    /// other variant when a step failed.
    pub async fn ensure(parts: &[Part], progress: &Progress) -> Result<Self, ToolsError> {
        let tools = Self::cached()?;
        if tools.is_complete(parts) {
            return Ok(tools);
        }
        let missing = preflight::for_build(parts, &tools);
        if !missing.is_empty() {
            return Err(ToolsError::Missing(missing));
        }
        std::fs::create_dir_all(&tools.dir).map_err(|e| ToolsError::io("create", &tools.dir, e))?;
        let _lock = lock::acquire(&tools.dir.with_extension("lock"), progress).await?;
        sweep(&tools.dir)?;

        let mut steps: Vec<progress::Planned> = Vec::new();
        let programs: Vec<_> = pins::programs(parts).filter(|p| !tools.has(p)).collect();
        let packages =
            parts.contains(&Part::Node) && !debian::is_unpacked(&tools.dir) && !system::has_node_programs();
        if packages {
            steps.push(progress::Planned::new(debian::STEP, debian::EXPECTED));
        }
        steps.extend(programs.iter().map(|p| progress::Planned::compile(p.name, p.cold_seconds)));
        progress.plan(steps);

        if packages {
            debian::unpack(&tools.dir, progress).await?;
        }
        golang::build(&tools.dir, &programs, progress).await?;
        Ok(tools)
    }

    /// Whether every program of `parts` is there.
    pub fn is_complete(&self, parts: &[Part]) -> bool {
        pins::programs(parts).all(|p| self.has(p))
            && (!parts.contains(&Part::Node) || debian::is_unpacked(&self.dir) || system::has_node_programs())
    }

    fn has(&self, program: &pins::Program) -> bool {
        self.dir.join("bin").join(program.file()).exists()
    }

    /// The cache folder itself.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Where the program `name` is: among the compiled, then among the unpacked, then on the machine. A program that
    /// is nowhere is said to be among the compiled, so that the error of starting it names the place that was meant.
    pub fn bin(&self, name: &str) -> PathBuf {
        let file = pins::file(name);
        let ours = self.program_dirs().map(|dir| dir.join(&file)).find(|path| path.exists());
        ours.or_else(|| system::find(name)).unwrap_or_else(|| self.dir.join("bin").join(file))
    }

    /// The folder with the CNI plugins `bridge`, `host-local`, `portmap` and `loopback`.
    pub fn cni_dir(&self) -> PathBuf {
        let ours = self.dir.join("deb/usr/lib/cni");
        if ours.exists() { ours } else { system::cni_dir().unwrap_or(ours) }
    }

    /// A value for `PATH`: our folders, then the present `PATH`, then the `sbin` folders that a plain user's lacks.
    pub fn bin_path_env(&self) -> OsString {
        let mut value = OsString::new();
        for dir in self.program_dirs().filter(|dir| dir.exists()).chain(system::program_dirs()) {
            if !value.is_empty() {
                value.push(":");
            }
            value.push(dir);
        }
        value
    }

    /// A value for `LD_LIBRARY_PATH` with the libraries that were unpacked for nft, iptables and runc, to be given to the
    /// processes of a real node only. `None` when the machine had all of them when the packages were unpacked.
    pub fn library_path(&self) -> Option<OsString> {
        let dirs = system::library_dirs_under(&self.dir.join("deb"));
        (!dirs.is_empty()).then(|| {
            let dirs: Vec<_> = dirs.into_iter().map(PathBuf::into_os_string).collect();
            dirs.join(std::ffi::OsStr::new(":"))
        })
    }

    /// The folder of the extensions of iptables, where iptables was unpacked.
    pub fn iptables_extensions(&self) -> Option<PathBuf> {
        let libraries = system::library_dirs_under(&self.dir.join("deb"));
        libraries.into_iter().map(|dir| dir.join("xtables")).find(|dir| dir.is_dir())
    }

    fn program_dirs(&self) -> impl Iterator<Item = PathBuf> + '_ {
        ["bin", "deb/usr/bin", "deb/usr/sbin", "deb/bin", "deb/sbin"].into_iter().map(|d| self.dir.join(d))
    }
}

/// Removes the work folders of builds that were killed. Only for the holder of the lock.
fn sweep(dir: &Path) -> Result<(), ToolsError> {
    for entry in std::fs::read_dir(dir).map_err(|e| ToolsError::io("list", dir, e))? {
        let path = entry.map_err(|e| ToolsError::io("list", dir, e))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("build-") || name.starts_with("deb-") {
            std::fs::remove_dir_all(&path).map_err(|e| ToolsError::io("remove the leftover", &path, e))?;
        }
    }
    Ok(())
}

/// The folder that holds one cache folder for each set of pins.
fn cache_root() -> Result<PathBuf, ToolsError> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = set("PODWARD_CACHE")
        .or_else(|| set("XDG_CACHE_HOME"))
        .or_else(|| set("HOME").map(|home| home.join(".cache")))
        .ok_or(ToolsError::NoCacheFolder)?;
    Ok(base.join("podward/testbed"))
}

#[cfg(test)]
mod tests;
