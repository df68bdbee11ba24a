//! Signatures in the format of cosign: an image under a tag that is made of the digest of what is signed (sigstore's
//! `cosign/specs/SIGNATURE_SPEC.md`).

use anyhow::Result;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use podward_images::Blob;
use serde_json::json;

use super::{MANIFEST, Registry};
use crate::signing_key::SigningKey;

const PAYLOAD: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";

impl Registry {
    /// Signs the manifest or index `subject` of this repository with `key`, and pushes the signature. It replaces other
    /// signatures of the same manifest.
    ///
    /// # Errors
    /// When the key cannot sign, or the registry refuses a request or does not answer in several attempts.
    pub(crate) async fn sign(&self, subject: &Blob, key: &SigningKey) -> Result<()> {
        let name = format!("{}/{}", self.name.host(), self.name.repository());
        let payload = json!({
            "critical": {
                "identity": { "docker-reference": name },
                "image": { "docker-manifest-digest": subject.digest() },
                "type": "cosign container image signature",
            },
            "optional": null,
        });
        let payload = Blob::json(PAYLOAD, &payload);
        let mut layer = payload.descriptor();
        let signature = BASE64_STANDARD.encode(key.sign(payload.content())?);
        layer["annotations"] = json!({ "dev.cosignproject.cosign/signature": signature });
        let config = json!({
            "architecture": "",
            "os": "",
            "config": {},
            "rootfs": { "type": "layers", "diff_ids": [payload.digest()] },
        });
        let config = Blob::json(CONFIG, &config);
        self.parts([&payload, &config]).await?;
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": config.descriptor(),
            "layers": [layer],
        });
        let tag = format!("{}.sig", subject.digest().replace(':', "-"));
        self.manifest(&Blob::json(MANIFEST, &manifest), &tag).await.map(drop)
    }
}
