//! Parts of JSON that keep only so much.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};

use super::{Exceeded, InstanceCount, MAX_INSTANCES, MAX_METADATA_OF_ONE};

/// An entry of a list of instances.
pub(crate) trait Entry {
    /// Returns its texts other than metadata.
    fn texts(&self) -> Vec<&str>;

    /// Returns its metadata.
    fn metadata(&self) -> &BTreeMap<String, String>;
}

/// A list of instances. Reading it fails with the text of an [`Exceeded`] if it has too many entries.
#[derive(Clone, Debug)]
pub(crate) struct Bounded<T>(pub(crate) Vec<T>);

impl<T> Default for Bounded<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Entry + Deserialize<'de>> Deserialize<'de> for Bounded<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        bounded(deserializer, Form::List)
    }
}

/// As [`Bounded`], and one entry may be there without a list. `null` is an empty list.
pub(crate) fn one_or_many<'de, D: Deserializer<'de>, T: Entry + Deserialize<'de>>(
    deserializer: D,
) -> Result<Bounded<T>, D::Error> {
    bounded(deserializer, Form::OneOrMany)
}

fn bounded<'de, D, T>(deserializer: D, form: Form) -> Result<Bounded<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Entry + Deserialize<'de>,
{
    let (mut found, mut count) = (Vec::new(), InstanceCount::default());
    each(deserializer, form, |entry: T| {
        count.add(entry.texts(), entry.metadata())?;
        found.push(entry);
        Ok(())
    })?;
    Ok(Bounded(found))
}

/// A list, or one entry, of which equal entries are kept once. Reading it fails with the text of an [`Exceeded`] if there are too many others.
#[derive(Clone, Debug)]
pub(crate) struct Names<T>(pub(crate) BTreeSet<T>);

impl<T> Default for Names<T> {
    fn default() -> Self {
        Self(BTreeSet::new())
    }
}

impl<'de, T: Ord + Deserialize<'de>> Deserialize<'de> for Names<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut found = BTreeSet::new();
        each(deserializer, Form::OneOrMany, |entry: T| {
            found.insert(entry);
            if found.len() > MAX_INSTANCES { Err(Exceeded::Names) } else { Ok(()) }
        })?;
        Ok(Self(found))
    }
}

/// What a list is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    List,
    /// A list, one entry, or `null`.
    OneOrMany,
}

/// Calls `visit` with each entry of a list.
pub(crate) fn each<'de, D, T, F>(deserializer: D, form: Form, visit: F) -> Result<(), D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
    F: FnMut(T) -> Result<(), Exceeded>,
{
    deserializer.deserialize_any(ListVisitor { form, visit, entry: PhantomData })
}

struct ListVisitor<T, F> {
    form: Form,
    visit: F,
    entry: PhantomData<T>,
}

impl<'de, T: Deserialize<'de>, F: FnMut(T) -> Result<(), Exceeded>> Visitor<'de> for ListVisitor<T, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        match self.form {
            Form::OneOrMany => Ok(()),
            Form::List => Err(E::invalid_type(Unexpected::Unit, &self)),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        while let Some(entry) = list.next_element::<T>()? {
            (self.visit)(entry).map_err(A::Error::custom)?;
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, entry: A) -> Result<(), A::Error> {
        if self.form == Form::List {
            return Err(A::Error::invalid_type(Unexpected::Map, &self));
        }
        let entry = T::deserialize(MapAccessDeserializer::new(entry))?;
        (self.visit)(entry).map_err(A::Error::custom)
    }
}

/// The texts of an object: what is not a text is left out. `null` is an empty one. Reading it fails with the text of an
/// [`Exceeded`] if there are too many entries.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Texts(pub(crate) BTreeMap<String, String>);

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextsVisitor)
    }
}

struct TextsVisitor;

impl<'de> Visitor<'de> for TextsVisitor {
    type Value = Texts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_unit<E: Error>(self) -> Result<Texts, E> {
        Ok(Texts::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Texts, A::Error> {
        let mut texts = BTreeMap::new();
        while let Some(key) = object.next_key()? {
            let Scalar::Text(text) = object.next_value()? else { continue };
            if texts.len() >= MAX_METADATA_OF_ONE {
                return Err(A::Error::custom(Exceeded::MetadataOfOne));
            }
            texts.insert(key, text);
        }
        Ok(Texts(texts))
    }
}

/// A value of which only a text, a whole number from 0 on, or a Boolean value is kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Scalar {
    Text(String),
    Number(u64),
    Bool(bool),
    #[default]
    Other,
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ScalarVisitor)
    }
}

struct ScalarVisitor;

impl<'de> Visitor<'de> for ScalarVisitor {
    type Value = Scalar;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Scalar, E> {
        Ok(Scalar::Text(text.to_owned()))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Scalar, E> {
        Ok(Scalar::Number(number))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Scalar, E> {
        Ok(Scalar::Bool(value))
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Scalar, E> {
        Ok(Scalar::Other)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Scalar, E> {
        Ok(Scalar::Other)
    }

    fn visit_unit<E: Error>(self) -> Result<Scalar, E> {
        Ok(Scalar::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Scalar, A::Error> {
        IgnoredAny.visit_seq(list).map(|_| Scalar::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<Scalar, A::Error> {
        IgnoredAny.visit_map(object).map(|_| Scalar::Other)
    }
}
