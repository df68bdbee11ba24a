//! Pushes images to a registry over the OCI distribution API (the specification's "Pushing manifests" and "Pushing
//! blobs").
//!
//! The crate `oci-client` is not used: it depends on reqwest, chrono and 40 more crates, some of them in a second
//! version. A push needs four kinds of requests, which the HTTP client of kube can send.

mod attempts;
mod charts;
mod credentials;
mod http;
mod login;
mod name;
mod platforms;
mod referrers;
mod signatures;
#[cfg(test)]
mod tests;

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use hyper::{Method, StatusCode, header};
use podward_images::{Blob, PackedImage};

use attempts::{AttemptFailure, attempts};
pub(crate) use credentials::Credentials;
use http::{Http, RegistryRequest, RegistryResponse};
pub(crate) use name::ImageName;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// A repository of a registry that images are pushed to.
pub(crate) struct Registry {
    http: Http,
    name: ImageName,
    /// The delay before the second attempt of a request.
    pause: Duration,
}

impl Registry {
    /// Returns the repository of the image `name`, with the credentials that `docker login` stored.
    ///
    /// # Errors
    /// When the credentials cannot be read, or this machine has no certificate authorities.
    pub(crate) async fn of(name: ImageName) -> Result<Self> {
        let credentials = Credentials::of(name.host()).await?;
        Self::with(name, credentials, Duration::from_secs(2))
    }

    fn with(name: ImageName, credentials: Option<Credentials>, pause: Duration) -> Result<Self> {
        let http = Http::new(name.host(), credentials)?;
        Ok(Self { http, name, pause })
    }

    /// Pushes the parts of `image` that the registry does not have, and then the manifest, which makes the image
    /// visible.
    ///
    /// # Errors
    /// When the registry refuses a request, or does not answer in several attempts.
    pub(crate) async fn push(&self, image: &PackedImage) -> Result<()> {
        self.parts([&image.layer, &image.config]).await?;
        self.manifest(&image.manifest, self.name.tag()).await.map(drop)
    }

    /// Pushes parts, in their order, that the registry does not have.
    async fn parts(&self, parts: [&Blob; 2]) -> Result<()> {
        for part in parts {
            self.blob(part).await?;
        }
        Ok(())
    }

    /// Pushes a part, unless the registry has it.
    async fn blob(&self, blob: &Blob) -> Result<()> {
        let what = format!("push the part {} of {}", blob.digest(), self.name);
        attempts(&what, self.pause, async || {
            let at = self.url(&format!("blobs/{}", blob.digest()));
            let stored = self.http.send(RegistryRequest::new(Method::HEAD, at)).await?;
            if stored.status == StatusCode::OK {
                return Ok(());
            }
            // An upload that failed cannot be continued, so each attempt begins a new one.
            let begin = RegistryRequest::new(Method::POST, self.url("blobs/uploads/"));
            let begun = self.http.send(begin).await?.expect(StatusCode::ACCEPTED)?;
            let to = begun.text(&header::LOCATION).context("the answer has no location for the upload");
            let to = to.and_then(|place| self.http.absolute(&place)).map_err(AttemptFailure::Permanent)?;
            let joint = if to.contains('?') { '&' } else { '?' };
            let upload = RegistryRequest::new(Method::PUT, format!("{to}{joint}digest={}", blob.digest()))
                .content("application/octet-stream", blob.content());
            self.http.send(upload).await?.expect(StatusCode::CREATED).map(drop)
        })
        .await
    }

    /// Pushes a manifest or an index. `reference` is its tag or digest.
    async fn manifest(&self, manifest: &Blob, reference: &str) -> Result<RegistryResponse> {
        let what = format!("push the manifest {reference} of {}", self.name);
        let answer = attempts(&what, self.pause, async || {
            let put = RegistryRequest::new(Method::PUT, self.url(&format!("manifests/{reference}")))
                .content(manifest.media_type(), manifest.content());
            self.http.send(put).await?.expect(StatusCode::CREATED)
        })
        .await?;
        if let Some(stored) = answer.text(&header::HeaderName::from_static("docker-content-digest")) {
            ensure!(
                stored == manifest.digest(),
                "cannot {what}: it was sent as {} and the registry has it as {stored}",
                manifest.digest()
            );
        }
        Ok(answer)
    }

    fn url(&self, path: &str) -> String {
        format!("{}/v2/{}/{path}", self.http.base(), self.name.repository())
    }

    /// Returns a manifest or an index, or `None` if the registry does not have it.
    async fn manifest_at(&self, reference: &str, media_type: &str) -> Result<Option<serde_json::Value>> {
        let what = format!("read {reference} of {}", self.name);
        let answer = attempts(&what, self.pause, async || {
            let get = RegistryRequest::new(Method::GET, self.url(&format!("manifests/{reference}")))
                .accept(media_type);
            let answer = self.http.send(get).await?;
            if answer.status == StatusCode::NOT_FOUND {
                Ok(None)
            } else {
                answer.expect(StatusCode::OK).map(Some)
            }
        })
        .await?;
        match answer {
            None => Ok(None),
            Some(answer) => match serde_json::from_slice(&answer.body) {
                Ok(document) => Ok(Some(document)),
                Err(error) => bail!("cannot {what}: it is not JSON: {error}"),
            },
        }
    }
}

/// Returns the entries of an index. A document that is no index has none.
fn manifests_of(index: Option<serde_json::Value>) -> Vec<serde_json::Value> {
    let manifests =
        index.and_then(|mut index| Some(index.get_mut("manifests")?.as_array_mut()?.split_off(0)));
    manifests.unwrap_or_default()
}

/// Returns an index with these entries.
fn index_of(manifests: Vec<serde_json::Value>) -> serde_json::Value {
    serde_json::json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": manifests })
}
