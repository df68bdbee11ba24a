//! Helm charts in registries (Helm's documentation, "Use OCI-based registries").

use anyhow::Result;
use podward_images::Blob;
use serde_json::{Value, json};

use super::{MANIFEST, Registry};

const CONFIG: &str = "application/vnd.cncf.helm.config.v1+json";
const CONTENT: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";

impl Registry {
    /// Pushes the chart in the archive `package`, with the content of its `Chart.yaml`. Returns the manifest.
    ///
    /// # Errors
    /// When the registry refuses a request, or does not answer in several attempts.
    pub(crate) async fn push_chart(&self, package: Vec<u8>, metadata: &Value) -> Result<Blob> {
        let (content, config) = (Blob::new(CONTENT, package), Blob::json(CONFIG, metadata));
        self.parts([&content, &config]).await?;
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": config.descriptor(),
            "layers": [content.descriptor()],
            "annotations": {
                "org.opencontainers.image.title": metadata["name"],
                "org.opencontainers.image.version": metadata["version"],
            },
        });
        let manifest = Blob::json(MANIFEST, &manifest);
        self.manifest(&manifest, self.name.tag()).await?;
        Ok(manifest)
    }
}
