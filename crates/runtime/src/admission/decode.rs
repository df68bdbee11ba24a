//! Parses an AdmissionReview.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::authn::Identity;

/// The only supported version of reviews.
pub(super) const API_VERSION: &str = "admission.k8s.io/v1";
/// The kind of the review.
pub(super) const KIND: &str = "AdmissionReview";

/// The request of a review. `T` has the fields of the object that the webhook reads; the other fields are skipped.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "T: Deserialize<'de>"))]
pub struct AdmissionRequest<'a, T> {
    /// ID of the request, which the response repeats.
    #[serde(borrow)]
    pub uid: Cow<'a, str>,
    /// The resource, without the subresource.
    #[serde(borrow)]
    pub resource: AdmissionResource<'a>,
    /// `status`, `eviction` and so on; empty for the object itself.
    #[serde(default, borrow)]
    pub sub_resource: Cow<'a, str>,
    /// The object's name; empty on CREATE with `generateName`.
    #[serde(default, borrow)]
    pub name: Cow<'a, str>,
    /// The object's namespace; empty for cluster scope.
    #[serde(default, borrow)]
    pub namespace: Cow<'a, str>,
    /// The kind of write.
    pub operation: AdmissionOperation,
    /// The user who makes the write.
    #[serde(default, borrow)]
    pub user_info: AdmissionUser<'a>,
    /// The object after the write; `None` on DELETE.
    #[serde(default = "none")]
    pub object: Option<T>,
    /// The stored object; `None` on CREATE.
    #[serde(default = "none")]
    pub old_object: Option<T>,
    /// True if nothing will be stored.
    #[serde(default, deserialize_with = "null_is_default")]
    pub dry_run: bool,
    /// The options of a DELETE; the default for other operations.
    #[serde(default, deserialize_with = "null_is_default")]
    pub options: DeleteOptions,
}

/// The fields of `metav1.DeleteOptions` that webhooks read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeleteOptions {
    /// Grace period in seconds; `None` stands for the object's own.
    #[serde(default)]
    pub grace_period_seconds: Option<i64>,
    /// `["All"]` if nothing is to be stored.
    #[serde(default)]
    pub dry_run: Option<Vec<String>>,
    /// What must be true of the stored object.
    #[serde(default)]
    pub preconditions: Option<Preconditions>,
}

/// `metav1.Preconditions`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Preconditions {
    /// The UID of the object.
    #[serde(default)]
    pub uid: Option<String>,
    /// The resource version of the object.
    #[serde(default)]
    pub resource_version: Option<String>,
}

fn none<T>() -> Option<T> {
    None
}

fn null_is_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// A resource: `pods` of version `v1` in the core group has `group` empty.
#[derive(Debug, Default, Deserialize)]
pub struct AdmissionResource<'a> {
    /// API group.
    #[serde(default, borrow)]
    pub group: Cow<'a, str>,
    /// API version.
    #[serde(default, borrow)]
    pub version: Cow<'a, str>,
    /// Plural name.
    #[serde(default, borrow)]
    pub resource: Cow<'a, str>,
}

/// The kind of write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum AdmissionOperation {
    /// `CREATE`.
    Create,
    /// `UPDATE`, by PUT, PATCH or apply.
    Update,
    /// `DELETE`.
    Delete,
    /// `CONNECT`.
    Connect,
}

impl AdmissionOperation {
    /// Returns its name in a review.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            AdmissionOperation::Create => "CREATE",
            AdmissionOperation::Update => "UPDATE",
            AdmissionOperation::Delete => "DELETE",
            AdmissionOperation::Connect => "CONNECT",
        }
    }
}

impl fmt::Display for AdmissionOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The user who makes a write.
#[derive(Debug, Default, Deserialize)]
pub struct AdmissionUser<'a> {
    /// `system:serviceaccount:<namespace>:<name>` for a service account.
    #[serde(default, borrow)]
    pub username: Cow<'a, str>,
    /// Unique ID of the user; empty if it has none.
    #[serde(default, borrow)]
    pub uid: Cow<'a, str>,
    /// Groups of the user.
    #[serde(default, deserialize_with = "null_is_default")]
    pub groups: Vec<String>,
    /// Other attributes from the authenticator of the API server.
    #[serde(default, deserialize_with = "null_is_default")]
    pub extra: BTreeMap<String, Vec<String>>,
}

impl AdmissionUser<'_> {
    /// Returns the user as an identity for [`Authorizer`](crate::authn::Authorizer).
    #[must_use]
    pub fn identity(&self) -> Identity {
        Identity {
            user: self.username.to_string(),
            uid: Some(self.uid.to_string()).filter(|uid| !uid.is_empty()),
            groups: self.groups.clone(),
            extra: self.extra.clone(),
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "T: Deserialize<'de>"))]
struct ReviewIn<'a, T> {
    #[serde(default, borrow)]
    api_version: Cow<'a, str>,
    #[serde(default, borrow)]
    kind: Cow<'a, str>,
    request: Option<MapOnly<T>>,
}

/// A `T` that must be a JSON object. Derived code would also accept an array, with its items as the fields.
struct MapOnly<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for MapOnly<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OfMap<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for OfMap<T> {
            type Value = T;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map))
            }
        }

        deserializer.deserialize_map(OfMap(PhantomData)).map(Self)
    }
}

#[derive(Deserialize)]
struct OnlyUid<'a> {
    #[serde(default, borrow)]
    uid: Cow<'a, str>,
}

/// A review can't be parsed. `uid` is that of the review; `None` if it can't be parsed either.
#[derive(Debug)]
pub(super) struct DecodeError<'a> {
    pub(super) uid: Option<Cow<'a, str>>,
    pub(super) message: String,
}

/// Parses a review.
pub(super) fn decode<'a, T: Deserialize<'a>>(
    body: &'a [u8],
) -> Result<AdmissionRequest<'a, T>, DecodeError<'a>> {
    match serde_json::from_slice::<MapOnly<ReviewIn<'a, AdmissionRequest<'a, T>>>>(body) {
        Ok(MapOnly(ReviewIn { api_version, kind, request })) => {
            if let Some(message) = unsupported(&api_version, &kind) {
                return Err(DecodeError { uid: None, message });
            }
            match request {
                Some(MapOnly(request)) if !request.uid.is_empty() => Ok(request),
                Some(_) => {
                    Err(DecodeError { uid: None, message: "the review's request has no uid".to_owned() })
                }
                None => Err(DecodeError { uid: None, message: "the review has no request".to_owned() }),
            }
        }
        Err(error) => Err(explain(body, &error)),
    }
}

fn unsupported(api_version: &str, kind: &str) -> Option<String> {
    (api_version != API_VERSION || kind != KIND).then(|| {
        let found = format!("{api_version:.80} {kind:.80}");
        format!(
            "expected {API_VERSION} {KIND}, got {found:?}; the webhook configuration must have v1 in \
             admissionReviewVersions"
        )
    })
}

/// Parses once more, only for the uid, because a review whose object can't be parsed can still be answered.
fn explain<'a>(body: &'a [u8], error: &serde_json::Error) -> DecodeError<'a> {
    let message = format!("the review could not be read: {error}");
    let Ok(MapOnly(review)) = serde_json::from_slice::<MapOnly<ReviewIn<'a, OnlyUid<'a>>>>(body) else {
        let is_json = serde_json::from_slice::<IgnoredAny>(body).is_ok();
        let message = if is_json { message } else { format!("the body is not JSON: {error}") };
        return DecodeError { uid: None, message };
    };
    match (unsupported(&review.api_version, &review.kind), review.request) {
        (Some(message), _) => DecodeError { uid: None, message },
        (None, Some(MapOnly(OnlyUid { uid }))) if !uid.is_empty() => DecodeError { uid: Some(uid), message },
        (None, _) => DecodeError { uid: None, message },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[derive(Debug, Deserialize)]
    struct Thing {
        size: u32,
    }

    fn review() -> Value {
        json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "u-1",
                "kind": {"group": "", "version": "v1", "kind": "Pod"},
                "resource": {"group": "", "version": "v1", "resource": "pods"},
                "subResource": "status", "name": "a", "namespace": "b", "operation": "UPDATE",
                "userInfo": {"username": "me", "groups": ["g"], "extra": {"x": ["y"]}},
                "object": {"size": 1, "rest": {"deep": [1, 2, 3]}}, "oldObject": {"size": 2},
                "dryRun": true, "options": {},
            },
        })
    }

    fn error_of(review: &Value) -> (Option<String>, String) {
        let body = serde_json::to_vec(review).unwrap();
        let error = decode::<Thing>(&body).unwrap_err();
        (error.uid.map(Cow::into_owned), error.message)
    }

    #[test]
    fn parses_a_review_and_borrows_its_strings() {
        let body = serde_json::to_vec(&review()).unwrap();
        let request: AdmissionRequest<'_, Thing> = decode(&body).unwrap();
        assert_eq!(
            (request.uid.as_ref(), request.operation, request.dry_run),
            ("u-1", AdmissionOperation::Update, true)
        );
        assert_eq!((request.resource.resource.as_ref(), request.sub_resource.as_ref()), ("pods", "status"));
        assert_eq!(
            (request.user_info.username.as_ref(), request.user_info.groups.as_slice()),
            ("me", &["g".to_owned()][..])
        );
        assert_eq!((request.object.unwrap().size, request.old_object.unwrap().size), (1, 2));
        assert!(matches!(request.uid, Cow::Borrowed(_)), "it was copied");
    }

    #[test]
    fn optional_fields_may_be_missing() {
        let mut review = review();
        let request = review["request"].as_object_mut().unwrap();
        for key in ["subResource", "name", "namespace", "userInfo", "oldObject"] {
            request.remove(key).unwrap();
        }
        request["dryRun"] = Value::Null;
        request["object"] = Value::Null;
        let body = serde_json::to_vec(&review).unwrap();
        let request: AdmissionRequest<'_, Thing> = decode(&body).unwrap();
        assert!(request.object.is_none() && request.old_object.is_none() && !request.dry_run);
    }

    #[test]
    fn a_bad_object_keeps_its_uid() {
        let mut review = review();
        review["request"]["object"]["size"] = json!("large");
        let (uid, message) = error_of(&review);
        assert_eq!(uid.as_deref(), Some("u-1"));
        assert!(message.contains("expected u32"), "{message}");
    }

    #[test]
    fn other_versions_and_kinds_are_refused() {
        for (key, value) in [("apiVersion", "admission.k8s.io/v1beta1"), ("kind", "ConversionReview")] {
            let mut review = review();
            review[key] = json!(value);
            let (uid, message) = error_of(&review);
            assert!(uid.is_none() && message.contains(value), "{message}");
        }
    }

    #[test]
    fn a_request_and_its_uid_are_required() {
        assert!(error_of(&json!({"apiVersion": API_VERSION, "kind": KIND})).1.contains("no request"));
        let mut review = review();
        review["request"]["uid"] = json!("");
        assert!(error_of(&review).1.contains("no uid"));
        assert!(error_of(&json!([1, 2])).1.contains("could not be read"));
    }

    #[test]
    fn an_array_is_not_taken_for_an_object() {
        assert!(error_of(&json!([API_VERSION, KIND, review()["request"]])).0.is_none());
        let (uid, message) = error_of(&json!({"apiVersion": API_VERSION, "kind": KIND, "request": ["u-1"]}));
        assert!(uid.is_none() && message.contains("expected an object"), "{message}");
    }

    #[test]
    fn an_error_says_that_a_body_is_not_json() {
        for body in [b"".as_slice(), b"hello", b"{\"apiVersion\":", b"\xff\xfe"] {
            let error = decode::<Thing>(body).unwrap_err();
            assert!(error.uid.is_none() && error.message.contains("not JSON"), "{}", error.message);
        }
    }
}
