//! The contents of the Secret.

use std::collections::BTreeMap;

use super::invalid::InvalidPathSecret;
use super::secret::PathSecret;

const CURRENT: &str = "current";
const CURRENT_SINCE: &str = "current-since";
const NEXT: &str = "next";
const NEXT_SINCE: &str = "next-since";
const PREVIOUS: &str = "previous";
const PREVIOUS_UNTIL: &str = "previous-until";

/// The contents of the Secret. Times are seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookPathState {
    /// The secret that the webhook configurations use.
    pub current: PathSecret,
    /// When it became the current one.
    pub since: u64,
    /// The successor, which is accepted but not used yet.
    pub next: Option<UpcomingSecret>,
    /// The predecessor, which is still accepted.
    pub previous: Option<RetiringSecret>,
}

/// A secret that is accepted and not used yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpcomingSecret {
    /// The secret.
    pub secret: PathSecret,
    /// Since when it is accepted, in seconds since 1970.
    pub since: u64,
}

/// A secret that was replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetiringSecret {
    /// The secret.
    pub secret: PathSecret,
    /// The end of its acceptance, in seconds since 1970. `None` while an entry may still use it.
    pub until: Option<u64>,
}

impl WebhookPathState {
    /// Reads the data of the Secret. Empty values count as missing, unknown keys are ignored.
    ///
    /// # Errors
    /// Fails if there is no current secret, or a value has another form.
    pub fn read<'a>(get: impl Fn(&str) -> Option<&'a str>) -> Result<Self, InvalidPathSecret> {
        let text = |key: &str| get(key).filter(|text| !text.is_empty());
        let secret = |key: &str| text(key).map(PathSecret::parse).transpose();
        let time = |key: &'static str| match text(key) {
            Some(text) => text.parse().map(Some).map_err(|_| InvalidPathSecret::Time(key)),
            None => Ok(None),
        };
        let current = secret(CURRENT)?.ok_or(InvalidPathSecret::Missing)?;
        let next = secret(NEXT)?;
        let next_since = time(NEXT_SINCE)?.unwrap_or_default();
        let previous = secret(PREVIOUS)?;
        let until = time(PREVIOUS_UNTIL)?;
        Ok(Self {
            current,
            since: time(CURRENT_SINCE)?.unwrap_or_default(),
            next: next.map(|secret| UpcomingSecret { secret, since: next_since }),
            previous: previous.map(|secret| RetiringSecret { secret, until }),
        })
    }

    /// Returns the data of the Secret. It has all keys, so that a merge patch replaces all earlier values.
    #[must_use]
    pub fn data(&self) -> BTreeMap<&'static str, String> {
        let next = self.next.as_ref();
        let previous = self.previous.as_ref();
        let until = previous.and_then(|previous| previous.until);
        BTreeMap::from([
            (CURRENT, self.current.reveal().to_owned()),
            (CURRENT_SINCE, self.since.to_string()),
            (NEXT, next.map(|next| next.secret.reveal().to_owned()).unwrap_or_default()),
            (NEXT_SINCE, next.map(|next| next.since.to_string()).unwrap_or_default()),
            (PREVIOUS, previous.map(|previous| previous.secret.reveal().to_owned()).unwrap_or_default()),
            (PREVIOUS_UNTIL, until.map(|until| until.to_string()).unwrap_or_default()),
        ])
    }

    /// Returns the secret that an entry is to use which now uses `used`. `None` if it uses the right one.
    ///
    /// An entry that uses the next secret is right: another replica has already made that one the current secret.
    #[must_use]
    pub fn wanted(&self, used: Option<&PathSecret>) -> Option<&PathSecret> {
        let next = self.next.as_ref().map(|next| &next.secret);
        let is_right = used.is_some_and(|used| *used == self.current || Some(used) == next);
        (!is_right).then_some(&self.current)
    }

    /// Returns the secrets that the webhooks accept: one to three.
    pub fn accepted(&self) -> impl Iterator<Item = &PathSecret> {
        let next = self.next.iter().map(|next| &next.secret);
        let previous = self.previous.iter().map(|previous| &previous.secret);
        std::iter::once(&self.current).chain(next).chain(previous)
    }
}
