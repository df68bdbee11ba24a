//! Errors of registries.

/// A call that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{doing} at {address}: {reason}")]
pub struct RegistryError {
    /// What was being done, to which object: "register 10.0.0.7:8080 of service shop".
    pub doing: String,
    /// The address of the registry.
    pub address: String,
    /// What went wrong, and what to do if that is known. It contains no credentials.
    pub reason: String,
    /// What follows for the caller.
    pub kind: RegistryErrorKind,
}

/// What a failed call means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RegistryErrorKind {
    /// The registry was not reached, or does not serve at the moment: nothing was changed. Try again later.
    Unavailable,
    /// The response was lost: the change may have been made. Read before trying again.
    Unknown,
    /// The registry does not accept the credentials, or they lack a permission.
    Denied,
    /// The registry rejects the content, now and later: a person has to change something.
    Rejected,
    /// Somebody else has changed the instance, or it is not as the change expects. Read before trying again.
    Conflict,
    /// The response is not one that this client understands.
    Invalid,
}

/// Returns what belongs to the address with this index.
///
/// # Errors
/// [`Rejected`](RegistryErrorKind::Rejected) if there are fewer addresses.
pub(crate) fn at_address<'a, T>(all: &'a [T], index: usize, doing: &str) -> Result<&'a T, RegistryError> {
    all.get(index).ok_or_else(|| RegistryError {
        doing: doing.to_owned(),
        address: format!("address {index}"),
        reason: format!("there are only {} addresses", all.len()),
        kind: RegistryErrorKind::Rejected,
    })
}
