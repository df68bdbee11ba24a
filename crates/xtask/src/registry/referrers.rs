//! Referrers of an image, such as its bill of materials: manifests with a `subject` (OCI distribution specification,
//! "Pushing Manifests with Subject").

use anyhow::Result;
use hyper::header::HeaderName;
use podward_images::Blob;
use serde_json::{Value, json};

use super::{INDEX, MANIFEST, Registry, index_of, manifests_of};

impl Registry {
    /// Pushes `document` as a referrer of the image with the manifest `subject`. `title` is the document's file name.
    ///
    /// # Errors
    /// When the registry refuses a request, or does not answer in several attempts.
    pub(crate) async fn attach(&self, subject: &Blob, document: &Blob, title: &str) -> Result<()> {
        let empty = Blob::new("application/vnd.oci.empty.v1+json", b"{}".to_vec());
        self.parts([&empty, document]).await?;
        let mut layer = document.descriptor();
        layer["annotations"] = json!({ "org.opencontainers.image.title": title });
        let manifest = Blob::json(
            MANIFEST,
            &json!({
                "schemaVersion": 2,
                "mediaType": MANIFEST,
                "artifactType": document.media_type(),
                "config": empty.descriptor(),
                "layers": [layer],
                "subject": subject.descriptor(),
            }),
        );
        let answer = self.manifest(&manifest, manifest.digest()).await?;
        if answer.headers.contains_key(HeaderName::from_static("oci-subject")) {
            return Ok(());
        }
        // This registry has no referrers API. Then clients keep the list of referrers under a tag made of the digest.
        let tag = subject.digest().replace(':', "-");
        let mut entry = manifest.descriptor();
        entry["artifactType"] = json!(document.media_type());
        match listed(self.manifest_at(&tag, INDEX).await?, entry) {
            Some(index) => self.manifest(&Blob::json(INDEX, &index), &tag).await.map(drop),
            None => Ok(()),
        }
    }
}

/// Returns the list of referrers with `entry` added, or `None` if it has the entry. Replaces an index that has no list.
fn listed(index: Option<Value>, entry: Value) -> Option<Value> {
    let mut manifests = manifests_of(index);
    if manifests.iter().any(|other| other["digest"] == entry["digest"]) {
        return None;
    }
    manifests.push(entry);
    Some(index_of(manifests))
}
