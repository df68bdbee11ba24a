//! Images for several platforms under one tag: an index (OCI image specification, `image-index.md`).

use anyhow::Result;
use podward_images::{Blob, PackedImage};
use serde_json::Value;

use super::{INDEX, Registry, index_of, manifests_of};

impl Registry {
    /// Pushes `image`, and makes it the image of its platform in the index at the tag. The images of other platforms stay
    /// in the index. Returns the index.
    ///
    /// Two pushes at the same time can lose one of the images: push one platform after the other.
    ///
    /// # Errors
    /// When the registry refuses a request, or does not answer in several attempts.
    pub(crate) async fn push_to_index(&self, image: &PackedImage) -> Result<Blob> {
        self.parts([&image.layer, &image.config]).await?;
        self.manifest(&image.manifest, image.manifest.digest()).await?;
        let mut entry = image.manifest.descriptor();
        entry["platform"] = image.platform();
        let index = with_entry(self.manifest_at(self.name.tag(), INDEX).await?, entry);
        let index = Blob::json(INDEX, &index);
        self.manifest(&index, self.name.tag()).await?;
        Ok(index)
    }
}

/// Returns the index with `entry` instead of another one for its platform. A document that is no index is replaced.
fn with_entry(index: Option<Value>, entry: Value) -> Value {
    let mut manifests = manifests_of(index);
    manifests.retain(|other| other["platform"] != entry["platform"]);
    manifests.push(entry);
    // The order does not depend on which platform was pushed first.
    manifests.sort_by_key(|manifest| manifest["platform"].to_string());
    index_of(manifests)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(architecture: &str, digest: &str) -> Value {
        json!({"digest": digest, "platform": {"architecture": architecture, "os": "linux"}})
    }

    #[test]
    fn each_platform_has_its_newest_image() {
        let arm = with_entry(None, entry("arm64", "a"));
        let both = with_entry(Some(arm), entry("amd64", "b"));
        assert_eq!(both["manifests"], json!([entry("amd64", "b"), entry("arm64", "a")]));
        let newer = with_entry(Some(both), entry("arm64", "c"));
        assert_eq!(newer["manifests"], json!([entry("amd64", "b"), entry("arm64", "c")]));
        let image = json!({"config": {}, "layers": []});
        assert_eq!(with_entry(Some(image), entry("amd64", "d"))["manifests"], json!([entry("amd64", "d")]));
    }
}
