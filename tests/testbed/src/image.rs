//! Container images from local files, without any container tool.
//!
//! An image is written as an OCI archive (image layout 1.0.0 in a tar) with a single uncompressed layer, which
//! `ctr images import`, `docker load` and `podman load` take. The same content gives the same bytes: no times, no
//! owners, everything sorted. Formats: the OCI image specification, `image-layout.md`, `manifest.md`, `config.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::error::{BedError, During};

mod archive;
mod blob;
mod packed;

use archive::Tar;
pub use blob::Blob;
pub use packed::Packed;

/// The sandbox image that a bed's containerd is told to use.
const PAUSE: &str = "podward.local/pause:1";

/// Folders that every image has: mount points of the runtime, and a `/tmp` to write to.
const FOLDERS: [&str; 6] = ["dev", "etc", "proc", "run", "sys", "tmp"];
const PASSWD: &str = "root:x:0:0:root:/:/bin/false\nnonroot:x:65532:65532:nonroot:/:/bin/false\n";

/// Why an image could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// A file that belongs into the image could not be read.
    #[error("image {image}: cannot read {path}; build it first")]
    Read {
        /// The image's name.
        image: String,
        /// The file on the host.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The archive could not be written.
    #[error("image {image}: cannot write {path}")]
    Write {
        /// The image's name.
        image: String,
        /// The archive.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A place in the image that isn't absolute.
    #[error("image {image}: the place {place} must be an absolute path without `.` and `..`")]
    Place {
        /// The image's name.
        image: String,
        /// The place.
        place: String,
    },
}

impl<T> During<T> for Result<T, ImageError> {
    fn during(self, what: impl FnOnce() -> String) -> Result<T, BedError> {
        self.map_err(|error| BedError::Io { what: what(), source: std::io::Error::other(error) })
    }
}

/// An image to be written.
///
/// ```no_run
/// # use podward_testbed::Image;
/// # fn main() -> Result<(), podward_testbed::ImageError> {
/// Image::new("podward.local/hello:1")
///     .file("target/hello", "/hello", 0o755)
///     .text("/etc/greeting", "good day")
///     .entrypoint(["/hello"])
///     .user("65532:65532")
///     .write("hello.tar".as_ref())?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Image {
    name: String,
    entries: BTreeMap<String, Entry>,
    entrypoint: Vec<String>,
    env: BTreeMap<String, String>,
    user: Option<String>,
    labels: BTreeMap<String, String>,
}

#[derive(Debug, Clone)]
enum Entry {
    File { source: PathBuf, mode: u32 },
    Text(String),
    Symlink(String),
}

impl Image {
    /// An empty image; `name` has a tag, such as `podward.local/hello:1`.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            entries: BTreeMap::from([("/etc/passwd".to_owned(), Entry::Text(PASSWD.to_owned()))]),
            entrypoint: Vec::new(),
            env: BTreeMap::from([("PATH".to_owned(), "/bin:/usr/bin:/sbin:/usr/sbin".to_owned())]),
            user: None,
            labels: BTreeMap::new(),
        }
    }

    /// The image of a pod's sandbox: a static `busybox` that sleeps.
    pub fn pause(busybox: &Path) -> Self {
        Self::new(PAUSE).file(busybox, "/bin/busybox", 0o755).entrypoint([
            "/bin/busybox",
            "sleep",
            "2147483647",
        ])
    }

    /// The name with the tag.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Puts the host's file `source` at `place`. It is read when the image is written.
    #[must_use]
    pub fn file(self, source: impl Into<PathBuf>, place: &str, mode: u32) -> Self {
        self.entry(place, Entry::File { source: source.into(), mode })
    }

    /// Puts a readable file with `content` at `place`.
    #[must_use]
    pub fn text(self, place: &str, content: impl Into<String>) -> Self {
        self.entry(place, Entry::Text(content.into()))
    }

    /// Makes `place` a symbolic link to `target`.
    #[must_use]
    pub fn symlink(self, place: &str, target: impl Into<String>) -> Self {
        self.entry(place, Entry::Symlink(target.into()))
    }

    /// The command that a container runs.
    #[must_use]
    pub fn entrypoint<S: Into<String>>(mut self, command: impl IntoIterator<Item = S>) -> Self {
        self.entrypoint = command.into_iter().map(Into::into).collect();
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }

    /// The user that the container runs as, `UID:GID` or a name; root if it isn't called.
    #[must_use]
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self
    }

    fn entry(mut self, place: &str, entry: Entry) -> Self {
        self.entries.insert(place.to_owned(), entry);
        self
    }

    /// A label of the image, and an annotation of its manifest.
    #[must_use]
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(name.into(), value.into());
        self
    }

    /// Packs the image and writes its archive to `out`, see [`Packed::write`]. Gives the digest of the manifest, `sha256:...`, which
    /// is the image's id in a registry.
    ///
    /// # Errors
    /// When a file can't be read, a place is not absolute, or the archive can't be written.
    pub fn write(&self, out: &Path) -> Result<String, ImageError> {
        let packed = self.pack()?;
        packed.write(out)?;
        Ok(packed.manifest.digest().to_owned())
    }

    /// Reads the files and makes the image of them.
    ///
    /// # Errors
    /// When a file can't be read, or a place is not absolute.
    pub fn pack(&self) -> Result<Packed, ImageError> {
        let layer = Blob::new(packed::LAYER, self.layer()?);
        let env: Vec<_> = self.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let mut container = json!({ "Entrypoint": self.entrypoint, "Env": env, "WorkingDir": "/" });
        if let Some(user) = &self.user {
            container["User"] = json!(user);
        }
        if !self.labels.is_empty() {
            container["Labels"] = json!(self.labels);
        }
        Ok(Packed::new(&self.name, &container, layer, &self.labels))
    }

    fn layer(&self) -> Result<Vec<u8>, ImageError> {
        let mut tar = Tar::default();
        let mut folders: BTreeSet<String> = FOLDERS.into_iter().map(str::to_owned).collect();
        for place in self.entries.keys() {
            let inside = self.inside(place)?;
            folders.extend(inside.match_indices('/').map(|(end, _)| inside[..end].to_owned()));
        }
        for folder in &folders {
            let mode = if folder == "tmp" { 0o1777 } else { 0o755 };
            tar.folder(folder, mode).map_err(|e| self.memory(e))?;
        }
        for (place, entry) in &self.entries {
            let inside = self.inside(place)?;
            match entry {
                Entry::Text(content) => tar.file(inside, content.as_bytes(), 0o644),
                Entry::Symlink(target) => tar.symlink(inside, target),
                Entry::File { source, mode } => {
                    let content = std::fs::read(source).map_err(|e| ImageError::Read {
                        image: self.name.clone(),
                        path: source.clone(),
                        source: e,
                    })?;
                    tar.file(inside, &content, *mode)
                }
            }
            .map_err(|e| self.memory(e))?;
        }
        tar.finish().map_err(|e| self.memory(e))
    }

    /// `place` as it is written in a layer: without the slash in front.
    fn inside<'a>(&self, place: &'a str) -> Result<&'a str, ImageError> {
        place
            .strip_prefix('/')
            .filter(|rest| rest.split('/').all(|piece| !piece.is_empty() && piece != "." && piece != ".."))
            .ok_or_else(|| ImageError::Place { image: self.name.clone(), place: place.to_owned() })
    }

    /// The tar writer's errors, all of which are about names that a tar can't hold.
    fn memory(&self, source: std::io::Error) -> ImageError {
        ImageError::Write { image: self.name.clone(), path: "(the archive in memory)".into(), source }
    }
}

#[cfg(test)]
mod tests;
