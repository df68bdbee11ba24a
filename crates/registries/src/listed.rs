//! The entries of a service that an address shows.

use std::net::IpAddr;

use serde_json::Value;

use crate::error::RegistryError;
use crate::instance::Instance;
use crate::owner::Owner;

/// The longest name of an entry in the text of an error. There may be many entries.
const MAX_NAME: usize = 300;

/// What an address shows of a service.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listed {
    /// The instances, also those of others and those out of service.
    pub instances: Vec<Instance>,
    /// The entries that may be instances, and that nobody understands. Others than those of Podward are often among them.
    pub unreadable: Vec<Unreadable>,
}

impl Listed {
    /// Returns the instances if all entries were understood.
    ///
    /// # Errors
    /// Fails with the error of the first one that was not.
    pub fn complete(self) -> Result<Vec<Instance>, RegistryError> {
        match self.unreadable.into_iter().next() {
            None => Ok(self.instances),
            Some(entry) => Err(entry.error),
        }
    }
}

/// An entry that may be an instance, and that cannot be read as one: it counts neither as an instance nor as absence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// The id that it has as an instance.
    pub id: String,
    /// The host that it has as an instance. `None` if that is not known.
    pub host: Option<String>,
    /// The port that it has as an instance. `None` if that is not known.
    pub port: Option<u16>,
    /// For whom it was registered, if it has a complete mark anywhere.
    pub owner: Option<Owner>,
    /// True if it has a trace of a mark: one of the keys of [`Owner::KEYS`].
    pub is_marked: bool,
    /// What cannot be read, and what to do.
    pub error: RegistryError,
}

impl Unreadable {
    /// Returns whether it may be an instance with this address: it is not known to have another one.
    pub fn may_be_at(&self, host: &str, port: u16) -> bool {
        self.host.as_deref().is_none_or(|own| own == host) && self.port.is_none_or(|own| own == port)
    }
}

/// Returns whether a text has a trace of a mark.
pub(crate) fn has_mark(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text);
    Owner::KEYS.iter().any(|key| text.contains(key))
}

/// Returns the owner in the first object of a JSON text that has a complete mark. Formats differ in where the metadata are.
pub(crate) fn owner_in(text: &[u8]) -> Option<Owner> {
    fn find(value: &Value) -> Option<Owner> {
        match value {
            Value::Array(values) => values.iter().find_map(find),
            Value::Object(fields) => {
                let [cluster, namespace, binding, pod, uid] =
                    Owner::KEYS.map(|key| fields.get(key).and_then(Value::as_str).map(ToOwned::to_owned));
                let owner = || {
                    Some(Owner {
                        cluster: cluster?,
                        namespace: namespace?,
                        binding: binding?,
                        pod: pod?,
                        uid: uid?,
                    })
                };
                owner().or_else(|| fields.values().find_map(find))
            }
            _ => None,
        }
    }
    find(&serde_json::from_slice(text).ok()?)
}

/// Returns the IP address that a host is, with or without the brackets of IPv6; `None` if it is a name.
pub(crate) fn ip_of(host: &str) -> Option<IpAddr> {
    host.trim_matches(['[', ']']).parse().ok()
}

/// Returns the name of an entry as the text of an error shows it.
pub(crate) fn shown(name: &str) -> String {
    let shortened: String = name.chars().take(MAX_NAME).collect();
    format!("{shortened:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_is_found_wherever_the_metadata_are() {
        let mark = r#"{"podward-cluster":"c","podward-namespace":"n","podward-binding":"b","podward-pod":"p","podward-uid":"u"}"#;
        for text in
            [mark.to_owned(), format!(r#"{{"a":1,"tags":{mark}}}"#), format!(r#"[null,{{"x":[{mark}]}}]"#)]
        {
            assert_eq!(owner_in(text.as_bytes()).map(|owner| owner.uid).as_deref(), Some("u"), "{text}");
        }
        for text in ["", "{}", r#"{"podward-uid":"u"}"#, r#"{"tags":null}"#, &mark.replace(r#""u""#, "1")] {
            assert_eq!(owner_in(text.as_bytes()), None, "{text}");
            assert_eq!(has_mark(text.as_bytes()), text.contains("podward"), "{text}");
        }
    }
}
