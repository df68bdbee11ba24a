//! Container images from local files, without any container tool.
//!
//! An image is written as an OCI archive (image layout 1.0.0 in a tar file) with a single uncompressed layer.
//! `ctr images import`, `docker load` and `podman load` accept it. The same content gives the same bytes: there are no
//! times and no owners, and all entries are sorted. Formats: the OCI image specification, `image-layout.md`,
//! `manifest.md`, `config.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::json;

mod archive;
mod blob;
mod error;
mod packed;

pub use archive::TarWriter;
pub use blob::Blob;
pub use error::ImageError;
pub use packed::{PackedImage, architecture};

/// The name of the sandbox image. The containerd of a test cluster uses it.
const PAUSE: &str = "podward.local/pause:1";

/// The folders of every image: mount points of the container runtime, and a writable `/tmp`.
const FOLDERS: [&str; 6] = ["dev", "etc", "proc", "run", "sys", "tmp"];
const PASSWD: &str = "root:x:0:0:root:/:/bin/false\nnonroot:x:65532:65532:nonroot:/:/bin/false\n";

/// The description of an image.
///
/// ```no_run
/// # use podward_images::Image;
/// # fn main() -> Result<(), podward_images::ImageError> {
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
    entries: BTreeMap<String, ImageEntry>,
    entrypoint: Vec<String>,
    env: BTreeMap<String, String>,
    user: Option<String>,
    labels: BTreeMap<String, String>,
}

#[derive(Debug, Clone)]
enum ImageEntry {
    File { source: PathBuf, mode: u32 },
    Text(String),
    Symlink(String),
}

impl Image {
    /// Returns an image without programs. `name` has a tag, for example `podward.local/hello:1`.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            entries: BTreeMap::from([("/etc/passwd".to_owned(), ImageEntry::Text(PASSWD.to_owned()))]),
            entrypoint: Vec::new(),
            env: BTreeMap::from([("PATH".to_owned(), "/bin:/usr/bin:/sbin:/usr/sbin".to_owned())]),
            user: None,
            labels: BTreeMap::new(),
        }
    }

    /// Returns the image of a pod's sandbox: a static `busybox` that sleeps.
    pub fn pause(busybox: &Path) -> Self {
        Self::new(PAUSE).file(busybox, "/bin/busybox", 0o755).entrypoint([
            "/bin/busybox",
            "sleep",
            "2147483647",
        ])
    }

    /// Returns the name with the tag.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Adds the file `source` of the host at `path`. The file is read when the image is packed.
    #[must_use]
    pub fn file(self, source: impl Into<PathBuf>, path: &str, mode: u32) -> Self {
        self.entry(path, ImageEntry::File { source: source.into(), mode })
    }

    /// Adds a file with `content` at `path`. Everyone can read it.
    #[must_use]
    pub fn text(self, path: &str, content: impl Into<String>) -> Self {
        self.entry(path, ImageEntry::Text(content.into()))
    }

    /// Adds a symbolic link to `target` at `path`.
    #[must_use]
    pub fn symlink(self, path: &str, target: impl Into<String>) -> Self {
        self.entry(path, ImageEntry::Symlink(target.into()))
    }

    /// Sets the command that a container runs.
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

    /// Sets the user that a container runs as: `UID:GID` or a name. The default is root.
    #[must_use]
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self
    }

    fn entry(mut self, path: &str, entry: ImageEntry) -> Self {
        self.entries.insert(path.to_owned(), entry);
        self
    }

    /// Sets a label of the image, which is an annotation of its manifest, too.
    #[must_use]
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(name.into(), value.into());
        self
    }

    /// Packs the image and writes its archive to `out`, see [`PackedImage::write`]. Returns the digest of the manifest,
    /// `sha256:...`, which is the id of the image in a registry.
    ///
    /// # Errors
    /// Fails if a file cannot be read, a path is not absolute, or the archive cannot be written.
    pub fn write(&self, out: &Path) -> Result<String, ImageError> {
        let packed = self.pack()?;
        packed.write(out)?;
        Ok(packed.manifest.digest().to_owned())
    }

    /// Reads the files and returns the content of the image.
    ///
    /// # Errors
    /// Fails if a file cannot be read or a path is not absolute.
    pub fn pack(&self) -> Result<PackedImage, ImageError> {
        let layer = Blob::new(packed::LAYER, self.layer()?);
        let env: Vec<_> = self.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let mut container = json!({ "Entrypoint": self.entrypoint, "Env": env, "WorkingDir": "/" });
        if let Some(user) = &self.user {
            container["User"] = json!(user);
        }
        if !self.labels.is_empty() {
            container["Labels"] = json!(self.labels);
        }
        Ok(PackedImage::new(&self.name, &container, layer, &self.labels))
    }

    fn layer(&self) -> Result<Vec<u8>, ImageError> {
        let mut tar = TarWriter::default();
        let mut folders: BTreeSet<String> = FOLDERS.into_iter().map(str::to_owned).collect();
        for path in self.entries.keys() {
            let inside = self.path_in_layer(path)?;
            folders.extend(inside.match_indices('/').map(|(end, _)| inside[..end].to_owned()));
        }
        for folder in &folders {
            let mode = if folder == "tmp" { 0o1777 } else { 0o755 };
            tar.folder(folder, mode).map_err(|e| self.archive_error(e))?;
        }
        for (path, entry) in &self.entries {
            let inside = self.path_in_layer(path)?;
            match entry {
                ImageEntry::Text(content) => tar.file(inside, content.as_bytes(), 0o644),
                ImageEntry::Symlink(target) => tar.symlink(inside, target),
                ImageEntry::File { source, mode } => {
                    let content = std::fs::read(source).map_err(|e| ImageError::Read {
                        image: self.name.clone(),
                        path: source.clone(),
                        source: e,
                    })?;
                    tar.file(inside, &content, *mode)
                }
            }
            .map_err(|e| self.archive_error(e))?;
        }
        tar.finish().map_err(|e| self.archive_error(e))
    }

    /// Returns `path` as it is written in a layer, without the leading slash.
    fn path_in_layer<'a>(&self, path: &'a str) -> Result<&'a str, ImageError> {
        path.strip_prefix('/')
            .filter(|rest| rest.split('/').all(|piece| !piece.is_empty() && piece != "." && piece != ".."))
            .ok_or_else(|| ImageError::InvalidPath { image: self.name.clone(), path: path.to_owned() })
    }

    /// Converts an error of the tar writer. All of them are about names that a tar file cannot contain.
    fn archive_error(&self, source: std::io::Error) -> ImageError {
        ImageError::Write { image: self.name.clone(), path: "(the archive in memory)".into(), source }
    }
}

#[cfg(test)]
mod tests;
