//! How much is read from a registry. Whoever may write a binding names a server of their own, which may answer anything.
//!
//! Assumed: a container with 256 MiB, of which the bridge needs 70 MiB with 10,000 pods. A read that reaches every limit
//! needs up to 130 MiB (measured with one arena of malloc, as the chart sets it). So a process reads only one large answer
//! at a time; others wait for it. Ten thousand instances with 2.4 kB and 20 entries of metadata each are within the limits.

mod bounded;
mod large_reads;

use std::collections::BTreeMap;

use serde_json::Value;

use crate::error::{RegistryError, RegistryErrorKind};
use crate::instance::Instance;

pub(crate) use bounded::{Bounded, Entry, Form, Names, Scalar, Texts, each, one_or_many};
pub(crate) use large_reads::{LARGE_TIME, LargeRead, LargeReads};

/// In bytes: all answers of one read of a service, or of the list of services.
pub(crate) const MAX_READ: usize = 24 << 20;
/// Instances of a service, and services in a list.
pub(crate) const MAX_INSTANCES: usize = 20_000;
/// Entries of metadata in all instances of a service. One may need 120 bytes, whatever its length.
pub(crate) const MAX_METADATA: usize = 200_000;
/// Entries of metadata in one instance.
pub(crate) const MAX_METADATA_OF_ONE: usize = 1_000;
/// Values in JSON that is read as it is. One may need 130 bytes, whatever its length.
const MAX_VALUES: usize = 300_000;
/// In bytes: one instance. Some of them may be kept while the registry is called again.
pub(crate) const MAX_INSTANCE: usize = 64 << 10;
/// In bytes. Answers up to this size are not [large](LargeReads).
pub(crate) const SMALL: usize = 256 << 10;

/// A limit that an answer exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exceeded {
    Bytes,
    Instances,
    Names,
    Metadata,
    MetadataOfOne,
    Values,
    OneInstance,
}

impl std::fmt::Display for Exceeded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mib = MAX_READ >> 20;
        match self {
            Self::Bytes => write!(f, "the answer has more than {mib} MiB"),
            Self::Instances => write!(f, "the service has more than {MAX_INSTANCES} instances"),
            Self::Names => write!(f, "there are more than {MAX_INSTANCES} entries"),
            Self::Metadata => write!(f, "the instances have more than {MAX_METADATA} entries of metadata"),
            Self::MetadataOfOne => {
                write!(f, "an instance has more than {MAX_METADATA_OF_ONE} entries of metadata")
            }
            Self::Values => write!(f, "the answer has more than {MAX_VALUES} values"),
            Self::OneInstance => write!(f, "an instance has more than {} KiB", MAX_INSTANCE >> 10),
        }?;
        f.write_str(
            "; Podward reads no more: remove instances or metadata that nobody needs, or divide the service or the registry",
        )
    }
}

impl Exceeded {
    /// Returns the error of a read.
    pub(crate) fn error(self, doing: &str, address: &str) -> RegistryError {
        RegistryError {
            doing: doing.to_owned(),
            address: address.to_owned(),
            reason: self.to_string(),
            kind: RegistryErrorKind::Invalid,
        }
    }

    /// Returns the limit that the text of an error of serde contains.
    pub(crate) fn of(text: &str) -> Option<Self> {
        [Self::Instances, Self::Names, Self::Metadata, Self::MetadataOfOne, Self::OneInstance]
            .into_iter()
            .find(|it| text.starts_with(&it.to_string()))
    }
}

/// Counts the instances of a service while they are read.
#[derive(Debug, Default)]
struct InstanceCount {
    instances: usize,
    metadata: usize,
}

impl InstanceCount {
    /// Adds an instance with these texts and `metadata`.
    ///
    /// # Errors
    /// Fails if it is too large, or there are too many.
    fn add<'t>(
        &mut self,
        texts: impl IntoIterator<Item = &'t str>,
        metadata: &BTreeMap<String, String>,
    ) -> Result<(), Exceeded> {
        let of_metadata = metadata.iter().map(|(key, value)| key.len() + value.len());
        let bytes: usize = texts.into_iter().map(str::len).chain(of_metadata).sum();
        self.metadata += metadata.len();
        if bytes > MAX_INSTANCE {
            return Err(Exceeded::OneInstance);
        }
        if self.instances >= MAX_INSTANCES {
            return Err(Exceeded::Instances);
        }
        if self.metadata > MAX_METADATA {
            return Err(Exceeded::Metadata);
        }
        self.instances += 1;
        Ok(())
    }
}

/// The instances of a service that were read so far.
#[derive(Debug, Default)]
pub(crate) struct Instances {
    found: Vec<Instance>,
    count: InstanceCount,
}

impl Instances {
    /// Adds an instance.
    ///
    /// # Errors
    /// Fails if there are too many.
    pub(crate) fn push(&mut self, instance: Instance) -> Result<(), Exceeded> {
        let texts = [&*instance.id, &instance.host, &instance.cluster];
        self.count.add(texts, &instance.metadata)?;
        self.found.push(instance);
        Ok(())
    }

    pub(crate) fn into_vec(self) -> Vec<Instance> {
        self.found
    }
}

/// Counts the bytes of the answers of one read.
#[derive(Debug, Default)]
pub(crate) struct BytesRead(std::sync::atomic::AtomicUsize);

impl BytesRead {
    /// Adds an answer.
    ///
    /// # Errors
    /// Fails if there are too many bytes.
    pub(crate) fn add(&self, bytes: usize) -> Result<(), Exceeded> {
        let before = self.0.fetch_add(bytes, std::sync::atomic::Ordering::Relaxed);
        if before.saturating_add(bytes) > MAX_READ { Err(Exceeded::Bytes) } else { Ok(()) }
    }

    /// Returns whether there are so many that the read is a large one.
    pub(crate) fn are_many(&self) -> bool {
        self.0.load(std::sync::atomic::Ordering::Relaxed) > SMALL
    }
}

/// Why JSON cannot be read as it is.
#[derive(Debug)]
pub(crate) enum NoValue {
    Exceeded(Exceeded),
    Json(serde_json::Error),
}

/// Reads JSON of any form, unless it has too many values.
///
/// # Errors
/// Fails if it has, or is not JSON.
pub(crate) fn value(text: &[u8]) -> Result<Value, NoValue> {
    if count(text) > MAX_VALUES {
        return Err(NoValue::Exceeded(Exceeded::Values));
    }
    serde_json::from_slice(text).map_err(NoValue::Json)
}

/// Returns the number of values in JSON, or a larger one. Each is the first one in its array or object, or follows a comma.
fn count(text: &[u8]) -> usize {
    let (mut count, mut in_text, mut is_escaped) = (1, false, false);
    for byte in text {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = in_text,
            b'"' => in_text = !in_text,
            b',' | b'[' | b'{' if !in_text => count += 1,
            _ => {}
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted() {
        for (text, values) in [
            ("1", 1),
            ("[]", 2),
            (r#"[1,"a,b[",{"c":2}]"#, 5),
            (r#"{"a\"":1,"b\\":2}"#, 3),
            (r#"["\\",","]"#, 3),
        ] {
            assert_eq!(count(text.as_bytes()), values, "{text}");
        }
        let many = "[],".repeat(MAX_VALUES);
        assert!(matches!(value(many.as_bytes()), Err(NoValue::Exceeded(Exceeded::Values))));
        assert!(matches!(value(b"]"), Err(NoValue::Json(_))));
    }

    #[test]
    fn instances_and_bytes_are_counted() {
        let (_, instance) = crate::http::tests::example();
        let mut instances = Instances::default();
        for _ in 0..MAX_INSTANCES {
            instances.push(instance.clone()).unwrap();
        }
        assert_eq!(instances.push(instance.clone()), Err(Exceeded::Instances));
        let mut wide = instance;
        wide.metadata = (0..1_000).map(|number| (number.to_string(), String::new())).collect();
        let mut instances = Instances::default();
        for _ in 0..MAX_METADATA / 1_000 {
            instances.push(wide.clone()).unwrap();
        }
        assert_eq!(instances.push(wide.clone()), Err(Exceeded::Metadata));
        wide.metadata.insert(String::new(), "x".repeat(MAX_INSTANCE));
        assert_eq!(Instances::default().push(wide), Err(Exceeded::OneInstance));
        let bytes = BytesRead::default();
        assert_eq!((bytes.add(MAX_READ), bytes.add(1)), (Ok(()), Err(Exceeded::Bytes)));
    }
}
