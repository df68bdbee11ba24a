//! The options of the measurement.

use std::time::Duration;

use anyhow::{Result, bail};

use super::server::RegistryName;

/// A part of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegistriesPart {
    /// Full comparisons with all pods.
    Comparison,
    /// A fifth of the pods is registered at once, by the bridge and by a client without it.
    Registrations,
    /// Pods become Ready one after the other.
    Ready,
    /// The heartbeats of all pods in Eureka.
    Heartbeats,
    /// Half of the pods is registered again after the registry has lost its data.
    Loss,
}

impl RegistriesPart {
    /// All parts.
    pub const ALL: [Self; 5] =
        [Self::Comparison, Self::Registrations, Self::Ready, Self::Heartbeats, Self::Loss];

    /// Returns the word for it in command lines.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Comparison => "comparison",
            Self::Registrations => "registrations",
            Self::Ready => "ready",
            Self::Heartbeats => "heartbeats",
            Self::Loss => "loss",
        }
    }
}

/// The options of the measurement.
#[derive(Clone, Debug)]
pub struct RegistriesOptions {
    /// The cargo profile of the services.
    pub profile: String,
    /// The parts.
    pub parts: Vec<RegistriesPart>,
    /// The registries. If it is empty, each part has its own: registrations and ready use all of them, comparison and loss
    /// use Consul.
    pub registries: Vec<RegistryName>,
    /// The number of pods.
    pub pods: usize,
    /// The number of pods of a service.
    pub pods_of_service: usize,
    /// The number of pods that become Ready one after the other.
    pub one_by_one: usize,
    /// The time of a measurement at rest.
    pub rest: Duration,
}

impl Default for RegistriesOptions {
    fn default() -> Self {
        RegistriesOptions {
            profile: "bench-lite".to_owned(),
            parts: RegistriesPart::ALL.to_vec(),
            registries: Vec::new(),
            pods: 10_000,
            pods_of_service: 500,
            one_by_one: 50,
            rest: Duration::from_secs(60),
        }
    }
}

impl RegistriesOptions {
    /// Returns the options that `words` name: a number of pods, `service=<number of pods of a service>`, parts, and
    /// registries, in any order.
    ///
    /// # Errors
    /// Fails if a word is none of these.
    pub fn parse(words: &[String]) -> Result<Self> {
        let mut options = Self::default();
        let mut parts = Vec::new();
        for word in words {
            let part = RegistriesPart::ALL.into_iter().find(|part| part.as_str() == word);
            let registry = RegistryName::ALL.into_iter().find(|name| name.as_str() == word);
            let number = word.strip_prefix("service=").unwrap_or(word).parse::<usize>();
            match (part, registry, number) {
                (Some(part), ..) => parts.push(part),
                (_, Some(name), _) => options.registries.push(name),
                (_, _, Ok(number @ 1..=100_000)) if word.starts_with("service=") => {
                    options.pods_of_service = number;
                }
                (_, _, Ok(number @ 10..=100_000)) => options.pods = number,
                _ => bail!(
                    "{word:?} is no part ({}), registry ({}), number of pods from 10 to 100000, or service=<number>",
                    RegistriesPart::ALL.map(RegistriesPart::as_str).join(", "),
                    RegistryName::ALL.map(RegistryName::as_str).join(", ")
                ),
            }
        }
        if !parts.is_empty() {
            options.parts = parts;
        }
        Ok(options)
    }

    /// Returns the registries of a part.
    pub(super) fn of_part(&self, part: RegistriesPart) -> Vec<RegistryName> {
        if !self.parts.contains(&part) {
            return Vec::new();
        }
        let usual = match part {
            RegistriesPart::Comparison | RegistriesPart::Loss => vec![RegistryName::Consul],
            RegistriesPart::Heartbeats => return vec![RegistryName::Eureka],
            RegistriesPart::Registrations | RegistriesPart::Ready => RegistryName::ALL.to_vec(),
        };
        if self.registries.is_empty() { usual } else { self.registries.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<RegistriesOptions> {
        RegistriesOptions::parse(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn words_select_parts_registries_and_sizes() {
        let options = parse("2000 ready consul eureka service=100").unwrap();
        assert_eq!((options.pods, options.pods_of_service), (2000, 100));
        assert_eq!(options.of_part(RegistriesPart::Ready), [RegistryName::Consul, RegistryName::Eureka]);
        assert!(options.of_part(RegistriesPart::Comparison).is_empty());
        let usual = parse("").unwrap();
        assert_eq!(usual.of_part(RegistriesPart::Comparison), [RegistryName::Consul]);
        assert_eq!(usual.of_part(RegistriesPart::Ready), RegistryName::ALL);
    }

    #[test]
    fn other_words_are_refused() {
        for bad in ["redis", "9", "service=0", "service=", "-1", "Consul"] {
            let error = parse(bad).unwrap_err().to_string();
            assert!(error.contains(bad), "{error}");
        }
    }
}
