//! Tests with a fake registry in this process, for faults that a real registry does not show on demand.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, Method, Response, StatusCode, Uri},
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use parking_lot::Mutex;
use podward_images::Image;
use serde_json::Value;

use super::*;
use crate::signing_key::tests::{is_signed, new_key};

/// The content of the fake registry, and its faults.
#[derive(Default)]
struct FakeRegistry {
    address: String,
    /// The content by path.
    stored: BTreeMap<String, Bytes>,
    requests: Vec<String>,
    /// The header `authorization` that the token server requires. `None` if the registry requires no token.
    required_login: Option<&'static str>,
    /// The number of uploads that fail after the registry received their content.
    failing_uploads: usize,
    /// True if the registry has the referrers API.
    referrers: bool,
    /// The location of uploads, if it is not the registry itself.
    elsewhere: Option<&'static str>,
    /// True if the registry reports wrong digests.
    wrong_digest: bool,
}

type SharedRegistry = Arc<Mutex<FakeRegistry>>;

impl FakeRegistry {
    async fn start(mut self) -> SharedRegistry {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        self.address = listener.local_addr().expect("an address").to_string();
        let fake = Arc::new(Mutex::new(self));
        let router = Router::new().fallback(answer).with_state(fake.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        fake
    }

    fn answer(&mut self, method: &Method, uri: &Uri, headers: &HeaderMap, body: Bytes) -> Response<Body> {
        let (path, query) = (uri.path().to_owned(), uri.query().unwrap_or_default());
        self.requests.push(format!("{method} {path}"));
        let response = Response::builder();
        let authorization = headers.get("authorization").and_then(|value| value.to_str().ok());
        let end = |status: StatusCode| Response::builder().status(status).body(Body::empty());
        if path == "/token" {
            assert!(query.contains("service=fake") && query.contains("scope=repository%3A"), "{query}");
            let status =
                if authorization == self.required_login { StatusCode::OK } else { StatusCode::UNAUTHORIZED };
            return response.status(status).body(Body::from(r#"{"token":"t1"}"#)).expect("a response");
        }
        if self.required_login.is_some() && authorization != Some("Bearer t1") {
            let realm = format!(
                r#"Bearer realm="http://{}/token",service="fake",scope="repository:podward/x:pull,push""#,
                self.address
            );
            let refused = response.status(StatusCode::UNAUTHORIZED).header("www-authenticate", realm);
            return refused.body(Body::empty()).expect("a response");
        }
        let answer = match *method {
            Method::HEAD | Method::GET => match self.stored.get(&path) {
                Some(content) => response.body(Body::from(content.clone())),
                None => end(StatusCode::NOT_FOUND),
            },
            Method::POST => {
                let to = self.elsewhere.map_or_else(|| format!("{path}one?state=a"), str::to_owned);
                response.status(StatusCode::ACCEPTED).header("location", to).body(Body::empty())
            }
            Method::PUT if path.contains("/uploads/") && self.failing_uploads > 0 => {
                self.failing_uploads -= 1;
                response.status(StatusCode::INTERNAL_SERVER_ERROR).body(Body::from("the disk is full"))
            }
            Method::PUT if path.contains("/uploads/") => {
                let digest =
                    query.strip_prefix("state=a&digest=").expect("the state and a digest").to_owned();
                assert_eq!(Blob::new("", body.to_vec()).digest(), digest);
                self.stored.insert(path.replace("uploads/one", &digest), body);
                end(StatusCode::CREATED)
            }
            Method::PUT => {
                let media_type = headers["content-type"].to_str().expect("a media type");
                let document: Value = serde_json::from_slice(&body).expect("a manifest");
                assert_eq!(document["mediaType"], media_type);
                let digest = Blob::new("", if self.wrong_digest { Vec::new() } else { body.to_vec() });
                let mut response =
                    response.status(StatusCode::CREATED).header("docker-content-digest", digest.digest());
                if self.referrers && document.get("subject").is_some() {
                    response = response.header("oci-subject", "sha256:some");
                }
                self.stored.insert(path, body);
                response.body(Body::empty())
            }
            _ => end(StatusCode::METHOD_NOT_ALLOWED),
        };
        answer.expect("a response")
    }
}

async fn answer(
    State(fake): State<SharedRegistry>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    fake.lock().answer(&method, &uri, &headers, body)
}

fn image(fake: &SharedRegistry) -> PackedImage {
    let name = format!("{}/podward/x:1", fake.lock().address);
    Image::new(name).text("/hello", "good day").entrypoint(["/hello"]).pack().expect("an image")
}

fn registry(fake: &SharedRegistry, credentials: Option<Credentials>) -> Registry {
    let name = image(fake).name.parse().expect("a name");
    Registry::with(name, credentials, Duration::ZERO).expect("a registry")
}

fn credentials(password: &str) -> Credentials {
    Credentials::Password { user: "me".to_owned(), password: password.to_owned() }
}

fn stored(fake: &SharedRegistry, place: &str) -> Bytes {
    let place = format!("/v2/podward/x/{place}");
    let fake = fake.lock();
    fake.stored.get(&place).unwrap_or_else(|| panic!("{place} in {:?}", fake.stored.keys())).clone()
}

fn requests(fake: &SharedRegistry, prefix: &str) -> usize {
    fake.lock().requests.iter().filter(|request| request.starts_with(prefix)).count()
}

/// `me:secret`
const ME: &str = "Basic bWU6c2VjcmV0";

#[tokio::test]
async fn an_image_is_pushed_with_a_token_and_only_once() {
    let fake = FakeRegistry { required_login: Some(ME), ..FakeRegistry::default() }.start().await;
    let (image, registry) = (image(&fake), registry(&fake, Some(credentials("secret"))));
    registry.push(&image).await.expect("pushed");
    assert_eq!(stored(&fake, "manifests/1"), image.manifest.content());
    for part in [&image.config, &image.layer] {
        assert_eq!(stored(&fake, &format!("blobs/{}", part.digest())), part.content());
    }
    assert_eq!(requests(&fake, "GET /token"), 1, "a token is used for more than one request");
    registry.push(&image).await.expect("pushed again");
    assert_eq!(requests(&fake, "POST /v2/podward/x/blobs/uploads/"), 2, "stored parts are not sent again");
}

#[tokio::test]
async fn a_denied_push_has_advice() {
    let fake = FakeRegistry { required_login: Some(ME), ..FakeRegistry::default() }.start().await;
    for login in [Some(credentials("wrong")), None] {
        let error = registry(&fake, login).push(&image(&fake)).await.expect_err("a refusal");
        let message = format!("{error:#}");
        assert!(message.contains("401") && message.contains("docker login 127.0.0.1"), "{message}");
        assert!(!message.contains("wrong") && !message.contains("Basic"), "{message}");
    }
    assert!(fake.lock().stored.is_empty());
}

#[tokio::test]
async fn a_failed_upload_begins_again() {
    let fake = FakeRegistry { failing_uploads: 2, ..FakeRegistry::default() }.start().await;
    let image = image(&fake);
    registry(&fake, None).push(&image).await.expect("pushed in the third attempt");
    assert_eq!(stored(&fake, &format!("blobs/{}", image.layer.digest())), image.layer.content());
    assert_eq!(requests(&fake, "POST"), 4, "two failed uploads of the layer, then one for each part");

    let fake = FakeRegistry { failing_uploads: usize::MAX, ..FakeRegistry::default() }.start().await;
    let image = self::image(&fake);
    let error = format!("{:#}", registry(&fake, None).push(&image).await.expect_err("never"));
    assert!(error.contains(image.layer.digest()) && error.contains("the disk is full"), "{error}");
    assert!(error.contains("4 attempts"), "{error}");
    assert_eq!(requests(&fake, "PUT /v2/podward/x/manifests"), 0, "no manifest without its parts");
}

#[tokio::test]
async fn a_document_is_attached_and_listed_once() {
    let document = Blob::new("application/vnd.cyclonedx+json", b"{}\n".to_vec());
    for referrers in [false, true] {
        let fake = FakeRegistry { referrers, ..FakeRegistry::default() }.start().await;
        let (image, registry) = (image(&fake), registry(&fake, None));
        registry.push(&image).await.expect("pushed");
        for _ in 0..2 {
            registry.attach(&image.manifest, &document, "x.cdx.json").await.expect("attached");
        }
        let list = format!("manifests/{}", image.manifest.digest().replace(':', "-"));
        if referrers {
            assert!(!fake.lock().stored.contains_key(&format!("/v2/podward/x/{list}")));
            continue;
        }
        let list: Value = serde_json::from_slice(&stored(&fake, &list)).expect("a list");
        assert_eq!(list["manifests"].as_array().expect("manifests").len(), 1);
        assert_eq!(list["manifests"][0]["artifactType"], document.media_type());
        let digest = list["manifests"][0]["digest"].as_str().expect("a digest");
        let manifest = stored(&fake, &format!("manifests/{digest}"));
        let manifest: Value = serde_json::from_slice(&manifest).expect("a manifest");
        assert_eq!(manifest["subject"], image.manifest.descriptor());
        assert_eq!(manifest["layers"][0]["digest"], document.digest());
    }
}

#[tokio::test]
async fn uploads_to_other_machines_need_tls() {
    let fake =
        FakeRegistry { elsewhere: Some("http://storage.example.com/upload"), ..FakeRegistry::default() }
            .start()
            .await;
    let error = registry(&fake, None).push(&image(&fake)).await.expect_err("a refusal");
    assert!(format!("{error:#}").contains("not encrypted"), "{error:#}");
}

#[tokio::test]
async fn a_wrong_digest_is_an_error() {
    let fake = FakeRegistry { wrong_digest: true, ..FakeRegistry::default() }.start().await;
    let error = registry(&fake, None).push(&image(&fake)).await.expect_err("another digest");
    assert!(format!("{error:#}").contains("the registry has it as"), "{error:#}");
}

#[tokio::test]
async fn a_signature_is_found_by_the_digest_of_what_it_signs() {
    let fake = FakeRegistry::default().start().await;
    let (image, registry) = (image(&fake), registry(&fake, None));
    let index = registry.push_to_index(&image).await.expect("pushed");
    assert_eq!(stored(&fake, "manifests/1"), index.content());
    assert_eq!(stored(&fake, &format!("manifests/{}", image.manifest.digest())), image.manifest.content());
    let again = registry.push_to_index(&image).await.expect("pushed again");
    assert_eq!(again, index, "an image is in the index once");

    let (key, pair) = new_key();
    registry.sign(&index, &key).await.expect("signed");
    let manifest = stored(&fake, &format!("manifests/{}.sig", index.digest().replace(':', "-")));
    let manifest: Value = serde_json::from_slice(&manifest).expect("a manifest");
    let layer = &manifest["layers"][0];
    let payload = stored(&fake, &format!("blobs/{}", layer["digest"].as_str().expect("a digest")));
    let signature = layer["annotations"]["dev.cosignproject.cosign/signature"].as_str().expect("a signature");
    let signature = BASE64_STANDARD.decode(signature).expect("base64");
    assert!(is_signed(&pair, &payload, &signature));
    let payload: Value = serde_json::from_slice(&payload).expect("a payload");
    assert_eq!(payload["critical"]["image"]["docker-manifest-digest"], index.digest());
}
