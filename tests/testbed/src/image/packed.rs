//! An image as registries and archives have it.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use serde_json::{Value, json};

use super::{Blob, ImageError, archive::Tar};

pub(super) const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// An image with all its bytes. There are no times in it: no file and no part tells when it was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    /// Its name with the tag.
    pub name: String,
    /// What a registry knows it by.
    pub manifest: Blob,
    /// How a container of it runs.
    pub config: Blob,
    /// All its files.
    pub layer: Blob,
}

impl Packed {
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

    /// Writes the archive to `out`, in one step: a reader sees the old file or the new one, never a part.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn write(&self, out: &Path) -> Result<(), ImageError> {
        let wrote = |source| ImageError::Write { image: self.name.clone(), path: out.to_owned(), source };
        let archive = self.archive().map_err(wrote)?;
        let folder = out.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut file = tempfile::NamedTempFile::new_in(folder).map_err(wrote)?;
        file.write_all(&archive).map_err(wrote)?;
        file.persist(out).map_err(|e| wrote(e.error))?;
        Ok(())
    }

    /// The archive's bytes (OCI image specification, `image-layout.md`).
    pub(super) fn archive(&self) -> std::io::Result<Vec<u8>> {
        let mut entry = self.manifest.descriptor();
        let tag = self.name.rsplit_once(':').map_or("latest", |(_, tag)| tag);
        entry["platform"] = json!({ "architecture": architecture(), "os": "linux" });
        // The first is what containerd names the image by at import, the second is the specification's.
        entry["annotations"] = json!({
            "io.containerd.image.name": self.name,
            "org.opencontainers.image.ref.name": tag,
        });
        let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [entry] }).to_string();

        let mut tar = Tar::default();
        tar.file("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#, 0o644)?;
        tar.file("index.json", index.as_bytes(), 0o644)?;
        for blob in [&self.config, &self.manifest, &self.layer] {
            tar.file(&format!("blobs/{}", blob.digest().replace(':', "/")), blob.content(), 0o644)?;
        }
        tar.finish()
    }
}

/// This machine's architecture, as images call it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
