//! Pushes images to a registry, over the OCI distribution API (the specification's "Pushing manifests" and "Pushing blobs").
//!
//! Own code, though there is the crate `oci-client`: that brings reqwest, chrono and 40 more crates, some of them a second time.
//! What a push needs is four kinds of requests, with the HTTP client that kube uses.

mod attempts;
mod credentials;
mod http;
mod login;
mod name;
mod referrers;
#[cfg(test)]
mod tests;

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use hyper::{Method, StatusCode, header};
use podward_testbed::{Blob, Packed};

use attempts::{Failure, attempts};
pub(crate) use credentials::Credentials;
use http::{Answer, Http, Request};
pub(crate) use name::Name;

/// A repository of a registry, to push to.
pub(crate) struct Registry {
    http: Http,
    name: Name,
    /// Between two attempts.
    pause: Duration,
}

impl Registry {
    /// That of the image `name`, with the credentials that `docker login` left.
    pub(crate) async fn of(name: Name) -> Result<Self> {
        let credentials = Credentials::of(name.host()).await?;
        Self::with(name, credentials, Duration::from_secs(2))
    }

    fn with(name: Name, credentials: Option<Credentials>, pause: Duration) -> Result<Self> {
        let http = Http::new(name.host(), credentials)?;
        Ok(Self { http, name, pause })
    }

    /// Pushes what the registry does not have yet, and at the end the manifest, which makes the image appear as a whole.
    pub(crate) async fn push(&self, image: &Packed) -> Result<()> {
        for part in [&image.layer, &image.config] {
            self.blob(part).await?;
        }
        self.manifest(&image.manifest, self.name.tag()).await.map(drop)
    }

    /// Pushes a part, unless it is there.
    async fn blob(&self, blob: &Blob) -> Result<()> {
        let what = format!("push the part {} of {}", blob.digest(), self.name);
        attempts(&what, self.pause, async || {
            let at = self.url(&format!("blobs/{}", blob.digest()));
            let there = self.http.send(Request::new(Method::HEAD, at)).await?;
            if there.status == StatusCode::OK {
                return Ok(());
            }
            // An upload that failed on its way can't be gone on with: each attempt begins one of its own.
            let begin = Request::new(Method::POST, self.url("blobs/uploads/"));
            let begun = self.http.send(begin).await?.expect(StatusCode::ACCEPTED)?;
            let to = begun.text(&header::LOCATION).context("it names no place to upload to");
            let to = to.and_then(|place| self.http.absolute(&place)).map_err(Failure::Lasting)?;
            let joint = if to.contains('?') { '&' } else { '?' };
            let upload = Request::new(Method::PUT, format!("{to}{joint}digest={}", blob.digest()))
                .content("application/octet-stream", blob.content());
            self.http.send(upload).await?.expect(StatusCode::CREATED).map(drop)
        })
        .await
    }

    /// Pushes a manifest or an index, known by `reference`, a tag or a digest.
    async fn manifest(&self, manifest: &Blob, reference: &str) -> Result<Answer> {
        let what = format!("push the manifest {reference} of {}", self.name);
        let answer = attempts(&what, self.pause, async || {
            let put = Request::new(Method::PUT, self.url(&format!("manifests/{reference}")))
                .content(manifest.media_type(), manifest.content());
            self.http.send(put).await?.expect(StatusCode::CREATED)
        })
        .await?;
        if let Some(theirs) = answer.text(&header::HeaderName::from_static("docker-content-digest")) {
            ensure!(
                theirs == manifest.digest(),
                "cannot {what}: it was sent as {} and the registry has it as {theirs}",
                manifest.digest()
            );
        }
        Ok(answer)
    }

    fn url(&self, place: &str) -> String {
        format!("{}/v2/{}/{place}", self.http.base(), self.name.repository())
    }

    /// A manifest or an index that the registry has, if it does.
    async fn manifest_at(&self, reference: &str, media_type: &str) -> Result<Option<serde_json::Value>> {
        let what = format!("read {reference} of {}", self.name);
        let answer = attempts(&what, self.pause, async || {
            let get =
                Request::new(Method::GET, self.url(&format!("manifests/{reference}"))).accept(media_type);
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
