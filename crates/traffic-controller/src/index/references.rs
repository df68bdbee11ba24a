//! The Services that the `spec` of an object names. Nothing else of it is kept, and nothing in it is an error.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};

use super::route_kind::RouteKind;

/// The keys that are read besides those in [`RouteKind::PATHS`]. What other keys have is skipped.
const FIELDS: [&str; 4] = ["kind", "name", "namespace", "targetType"];
/// The maximum length of the name of an object. A longer text is none.
const MAX_NAME: usize = 253;

/// The Services that the `spec` of an object of kind `K` names.
#[derive(Clone, Debug)]
pub(super) struct References<K> {
    /// Namespace and name of each. Without a namespace it is that of the object.
    pub(super) services: Vec<(Option<String>, String)>,
    /// The field `targetType`.
    pub(super) target_type: Option<String>,
    kind: PhantomData<K>,
}

impl<K> Default for References<K> {
    fn default() -> Self {
        Self { services: Vec::new(), target_type: None, kind: PhantomData }
    }
}

impl<'de, K: RouteKind> Deserialize<'de> for References<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut reader = Reader { found: Self::default(), path: Vec::new() };
        reader.deserialize(deserializer)?;
        Ok(reader.found)
    }
}

/// Reads a value. Its result is the text, if the value is one.
struct Reader<K> {
    found: References<K>,
    /// The keys that lead to the value, without the positions in lists.
    path: Vec<&'static str>,
}

impl<'de, K: RouteKind> DeserializeSeed<'de> for &mut Reader<K> {
    type Value = Option<String>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<String>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, K: RouteKind> Visitor<'de> for &mut Reader<K> {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    fn visit_bool<E: de::Error>(self, _: bool) -> Result<Option<String>, E> {
        Ok(None)
    }

    fn visit_i64<E: de::Error>(self, _: i64) -> Result<Option<String>, E> {
        Ok(None)
    }

    fn visit_u64<E: de::Error>(self, _: u64) -> Result<Option<String>, E> {
        Ok(None)
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<Option<String>, E> {
        Ok(None)
    }

    fn visit_unit<E: de::Error>(self) -> Result<Option<String>, E> {
        Ok(None)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Option<String>, E> {
        Ok((1..=MAX_NAME).contains(&text.len()).then(|| text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Option<String>, A::Error> {
        while elements.next_element_seed(&mut *self)?.is_some() {}
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Option<String>, A::Error> {
        let (mut name, mut namespace, mut kind) = (None, None, None);
        while let Some(key) = fields.next_key::<String>()? {
            let leads_on =
                K::PATHS.iter().filter_map(|path| path.strip_prefix(&*self.path)?.first().copied());
            let Some(known) = leads_on.chain(FIELDS).find(|known| *known == key) else {
                fields.next_value::<IgnoredAny>()?;
                continue;
            };
            self.path.push(known);
            let text = fields.next_value_seed(&mut *self)?;
            self.path.pop();
            match known {
                "name" => name = text,
                "namespace" => namespace = text,
                "kind" => kind = text,
                "targetType" if self.path.is_empty() => self.found.target_type = text,
                _ => {}
            }
        }
        let is_service = K::PATHS.contains(&&*self.path) && kind.is_none_or(|kind| kind == "Service");
        if let Some(name) = name.filter(|_| is_service) {
            self.found.services.push((namespace, name));
        }
        Ok(None)
    }
}
