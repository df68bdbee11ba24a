//! The content of an image, as registries and archives store it.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use serde_json::{Value, json};

use super::{archive::TarWriter, blob::Blob, error::ImageError};

pub(super) const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// The content of an image. It contains no times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackedImage {
    /// The name with the tag.
    pub name: String,
    /// The manifest. Its digest identifies the image in a registry.
    pub manifest: Blob,
    /// The configuration of its containers.
    pub config: Blob,
    /// All files.
    pub layer: Blob,
}

impl PackedImage {
    pub(super) fn new(
        name: &str,
        container: &Value,
        layer: Blob,
        annotations: &BTreeMap<String, String>,
    ) -> Self {
        let config = json!({
            "architecture": architecture(),
            "os": "linux",
            "config": container,
            "rootfs": { "type": "layers", "diff_ids": [layer.digest()] },
        });
        let config = Blob::json(CONFIG, &config);
        let mut manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": config.descriptor(),
            "layers": [layer.descriptor()],
        });
        if !annotations.is_empty() {
            manifest["annotations"] = json!(annotations);
        }
        Self { name: name.to_owned(), manifest: Blob::json(MANIFEST, &manifest), config, layer }
    }

    /// Returns the platform, as the entry of an index has it (OCI image specification, `image-index.md`).
    #[must_use]
    pub fn platform(&self) -> Value {
        json!({ "architecture": architecture(), "os": "linux" })
    }

    /// Writes the archive to `out` atomically: a reader sees the old file or the new one, never a part of it.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn write(&self, out: &Path) -> Result<(), ImageError> {
        let wrote = |source| ImageError::Write { image: self.name.clone(), path: out.to_owned(), source };
        let archive = self.archive().map_err(wrote)?;
        let folder = out.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut file = tempfile::NamedTempFile::new_in(folder).map_err(wrote)?;
        file.write_all(&archive).map_err(wrote)?;
        file.persist(out).map_err(|e| wrote(e.error))?;
        Ok(())
    }

    /// Returns the bytes of the archive (OCI image specification, `image-layout.md`).
    pub(super) fn archive(&self) -> std::io::Result<Vec<u8>> {
        let mut entry = self.manifest.descriptor();
        let tag = self.name.rsplit_once(':').map_or("latest", |(_, tag)| tag);
        entry["platform"] = self.platform();
        // containerd names an imported image by the first annotation. The second is that of the specification.
        entry["annotations"] = json!({
            "io.containerd.image.name": self.name,
            "org.opencontainers.image.ref.name": tag,
        });
        let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [entry] }).to_string();

        let mut tar = TarWriter::default();
        tar.file("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#, 0o644)?;
        tar.file("index.json", index.as_bytes(), 0o644)?;
        for blob in [&self.config, &self.manifest, &self.layer] {
            tar.file(&format!("blobs/{}", blob.digest().replace(':', "/")), blob.content(), 0o644)?;
        }
        tar.finish()
    }
}

/// Returns the architecture of this machine by its name in images, which is Go's: `amd64` or `arm64`.
#[must_use]
pub fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
