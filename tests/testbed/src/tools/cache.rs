//! The cache folder of the programs.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::error::ToolsError;
use super::kubernetes::KubernetesPins;
use super::part::Part;
use super::{debian, maven, pins, rust, system};

/// A cache folder with the programs of a cluster.
///
/// `bin/` contains compiled programs, `deb/` contains unpacked packages.
#[derive(Debug, Clone)]
pub struct Tools {
    pub(super) dir: PathBuf,
}

impl Tools {
    /// Returns the tools in the folder `dir`. It neither checks nor builds anything.
    pub fn at(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// Returns the cache folder for the pins of this version: `podward/testbed/<key>` under `$PODWARD_CACHE`,
    /// `$XDG_CACHE_HOME` or `~/.cache`. The folder may be empty.
    ///
    /// # Errors
    /// Fails if none of the three variables (or `$HOME`) is set, or `$PODWARD_TESTBED_KUBERNETES` names a version without
    /// pins.
    pub fn cached() -> Result<Self, ToolsError> {
        KubernetesPins::check()?;
        Ok(Self::at(cache_root()?.join(pins::key())))
    }

    /// Returns whether all programs of `parts` exist.
    pub fn is_complete(&self, parts: &[Part]) -> bool {
        pins::programs(parts).all(|p| self.has(p))
            && parts
                .iter()
                .all(|part| maven::is_fetched(&self.dir, *part) && rust::is_built(&self.dir, *part))
            && (!parts.contains(&Part::Node) || debian::is_unpacked(&self.dir) || system::has_node_programs())
    }

    pub(super) fn has(&self, program: &pins::Program) -> bool {
        self.dir.join("bin").join(program.file()).exists()
    }

    /// Returns the cache folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the path of the program `name`. The search order is: compiled programs, unpacked programs, programs of
    /// the machine. If there is none, it returns the path in the folder of compiled programs, so that the error of
    /// starting it names that path.
    pub fn bin(&self, name: &str) -> PathBuf {
        if let Some(path) = rust::path(&self.dir, name) {
            return path;
        }
        let file = pins::file(name);
        let ours = self.program_dirs().map(|dir| dir.join(&file)).find(|path| path.exists());
        ours.or_else(|| system::find(name)).unwrap_or_else(|| self.dir.join("bin").join(file))
    }

    /// Returns the path of the Java archive whose file name begins with `name`, such as `eureka-server`. `None` if there is no
    /// such archive.
    pub fn java_archive(&self, name: &str) -> Option<PathBuf> {
        maven::archive(&self.dir, name)
    }

    /// Returns the class path of the Java archives of `part`. It is empty if the part has none.
    pub fn java_class_path(&self, part: Part) -> OsString {
        let paths: Vec<_> = maven::paths(&self.dir, part).map(PathBuf::into_os_string).collect();
        paths.join(std::ffi::OsStr::new(":"))
    }

    /// Returns the folder with the CNI plugins `bridge`, `host-local`, `portmap` and `loopback`.
    pub fn cni_dir(&self) -> PathBuf {
        let ours = self.dir.join("deb/usr/lib/cni");
        if ours.exists() { ours } else { system::cni_dir().unwrap_or(ours) }
    }

    /// Returns a value for `PATH`: the folders of the tools, the current `PATH`, and the `sbin` folders that the
    /// `PATH` of an ordinary user lacks.
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

    /// Returns a value for `LD_LIBRARY_PATH` with the unpacked libraries of nft, iptables and runc. It is only for
    /// processes of a real node. Returns `None` if the machine had all of them when the packages were unpacked.
    pub fn library_path(&self) -> Option<OsString> {
        let dirs = system::library_dirs_under(&self.dir.join("deb"));
        (!dirs.is_empty()).then(|| {
            let dirs: Vec<_> = dirs.into_iter().map(PathBuf::into_os_string).collect();
            dirs.join(std::ffi::OsStr::new(":"))
        })
    }

    /// Returns the folder of the extensions of iptables, if iptables was unpacked.
    pub fn iptables_extensions(&self) -> Option<PathBuf> {
        let libraries = system::library_dirs_under(&self.dir.join("deb"));
        libraries.into_iter().map(|dir| dir.join("xtables")).find(|dir| dir.is_dir())
    }

    fn program_dirs(&self) -> impl Iterator<Item = PathBuf> + '_ {
        ["bin", "deb/usr/bin", "deb/usr/sbin", "deb/bin", "deb/sbin"].into_iter().map(|d| self.dir.join(d))
    }
}

/// Returns the folder that contains the cache folders.
pub(super) fn cache_root() -> Result<PathBuf, ToolsError> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = set("PODWARD_CACHE")
        .or_else(|| set("XDG_CACHE_HOME"))
        .or_else(|| set("HOME").map(|home| home.join(".cache")))
        .ok_or(ToolsError::NoCacheFolder)?;
    Ok(base.join("podward/testbed"))
}
