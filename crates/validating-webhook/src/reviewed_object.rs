//! The objects in reviews.

use std::borrow::Cow;
use std::fmt;

use podward_core::Pod;
use podward_runtime::admission::DeleteOptions;
use serde::de::{Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// A pod or an Eviction. An Eviction has `deleteOptions` instead of `spec` and `status`. Other fields are ignored.
///
/// Deserialization is implemented by hand, because serde's `flatten` would buffer the ignored fields.
#[derive(Debug, Default)]
pub struct ReviewedObject {
    pub(crate) pod: Pod,
    pub(crate) delete_options: DeleteOptions,
}

impl<'de> Deserialize<'de> for ReviewedObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = ReviewedObject;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a pod or an eviction")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ReviewedObject, A::Error> {
                let (mut metadata, mut spec, mut status, mut options) = (None, None, None, None);
                while let Some(key) = map.next_key::<Cow<'de, str>>()? {
                    match key.as_ref() {
                        "metadata" => once(&mut metadata, "metadata", &mut map)?,
                        "spec" => once(&mut spec, "spec", &mut map)?,
                        "status" => once(&mut status, "status", &mut map)?,
                        "deleteOptions" => once(&mut options, "deleteOptions", &mut map)?,
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                Ok(ReviewedObject {
                    pod: Pod {
                        metadata: metadata.unwrap_or_default(),
                        spec: spec.unwrap_or_default(),
                        status: status.unwrap_or_default(),
                    },
                    delete_options: options.flatten().unwrap_or_default(),
                })
            }
        }

        fn once<'de, A: MapAccess<'de>, T: Deserialize<'de>>(
            slot: &mut Option<T>,
            name: &'static str,
            map: &mut A,
        ) -> Result<(), A::Error> {
            match slot.replace(map.next_value()?) {
                Some(_) => Err(A::Error::duplicate_field(name)),
                None => Ok(()),
            }
        }

        deserializer.deserialize_map(Members)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pods_and_evictions_are_parsed() {
        let pod = json!({
            "metadata": {"name": "a"}, "spec": {"nodeName": "n"}, "status": {"phase": "Running"}, "more": [1],
        });
        let read: ReviewedObject = serde_json::from_value(pod).unwrap();
        assert_eq!((read.pod.metadata.name.as_str(), read.pod.node_name()), ("a", Some("n")));
        for options in [json!({"gracePeriodSeconds": 3, "dryRun": ["All"]}), json!(null)] {
            let eviction =
                json!({"kind": "Eviction", "metadata": {"name": "a"}, "deleteOptions": options.clone()});
            let read: ReviewedObject = serde_json::from_value(eviction).unwrap();
            assert_eq!(read.delete_options.grace_period_seconds, options["gracePeriodSeconds"].as_i64());
        }
        assert!(serde_json::from_str::<ReviewedObject>(r#"{"spec":{},"spec":{}}"#).is_err());
        assert!(serde_json::from_str::<ReviewedObject>("[]").is_err());
    }
}
