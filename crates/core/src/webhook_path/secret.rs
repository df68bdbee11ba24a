//! One secret, and the paths that contain it.

use std::fmt::{self, Write};

use super::invalid::InvalidPathSecret;

/// The characters of a secret: 32 bytes as hexadecimal digits. A path of a webhook configuration may have only
/// lower-case letters, digits, dots and dashes between its slashes.
const LENGTH: usize = 64;

/// A secret of the paths. It has no `Display`, and `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct PathSecret(String);

impl PathSecret {
    /// Returns the secret of 32 random bytes, which must come from a cryptographic generator.
    #[must_use]
    pub fn of_random(bytes: [u8; LENGTH / 2]) -> Self {
        let mut text = String::with_capacity(LENGTH);
        for byte in bytes {
            // To write to a string does not fail.
            let _ = write!(text, "{byte:02x}");
        }
        Self(text)
    }

    /// Parses the text of a secret.
    ///
    /// # Errors
    /// Fails if `text` does not consist of 64 lower-case hexadecimal digits. The error does not contain the text.
    pub fn parse(text: &str) -> Result<Self, InvalidPathSecret> {
        let is_digit = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
        if text.len() == LENGTH && text.as_bytes().iter().all(is_digit) {
            return Ok(Self(text.to_owned()));
        }
        Err(InvalidPathSecret::Text)
    }

    /// Returns the text, for comparison and storage. Never write it to a log.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Returns the path of `route` (as `/mutate`) with this secret.
    #[must_use]
    pub fn path(&self, route: &str) -> String {
        format!("/{}{route}", self.0)
    }

    /// Returns the secret in the path of an entry of a webhook configuration whose route is `route`. `None` if the path
    /// has another form.
    #[must_use]
    pub fn of_path(path: &str, route: &str) -> Option<Self> {
        let (secret, rest) = split(path)?;
        (rest == route).then(|| Self::parse(secret).ok()).flatten()
    }
}

impl fmt::Debug for PathSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PathSecret(..)")
    }
}

/// Splits `/<secret>/<route>` into the secret, which is not checked, and the route with its slash. `None` if the path
/// has another form.
#[must_use]
pub fn split(path: &str) -> Option<(&str, &str)> {
    let rest = path.strip_prefix('/')?;
    let end = rest.find('/')?;
    let (secret, route) = rest.split_at(end);
    (!secret.is_empty() && route.len() > 1).then_some((secret, route))
}
