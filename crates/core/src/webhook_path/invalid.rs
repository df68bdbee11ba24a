//! The error of contents that can't be used.

/// The contents of the Secret, or of a file with secrets, can't be used. The errors do not contain the contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPathSecret {
    /// There is no current secret.
    #[error("it has no key current")]
    Missing,
    /// A secret has another form.
    #[error("a secret must have 64 lower-case hexadecimal digits, as `openssl rand -hex 32` prints them")]
    Text,
    /// A time is not a number.
    #[error("the key {0} must be a number of seconds since 1970")]
    Time(&'static str),
}
