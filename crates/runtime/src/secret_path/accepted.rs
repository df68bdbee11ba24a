//! The secrets that are accepted now.

use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;
use podward_core::webhook_path::{PathSecret, split};
use subtle::{Choice, ConstantTimeEq};

use super::file::SecretFile;

/// The secrets that are accepted now: none at first. Clones share them.
#[derive(Clone, Default)]
pub struct AcceptedSecrets {
    secrets: Arc<RwLock<Arc<[PathSecret]>>>,
    file: Option<Arc<SecretFile>>,
}

impl AcceptedSecrets {
    /// Accepts the secrets in `file`, which is read again when it changes.
    pub(super) fn of_file(file: SecretFile) -> Self {
        Self { secrets: Arc::new(RwLock::new(file.first())), file: Some(Arc::new(file)) }
    }

    /// Accepts `secrets` and no others. Returns true if they are others than before.
    pub(super) fn replace(&self, secrets: Vec<PathSecret>) -> bool {
        let mut known = self.secrets.write();
        let is_new = **known != *secrets;
        if is_new {
            *known = secrets.into();
        }
        is_new
    }

    /// Returns the route in `path`, as `/mutate`, if the path begins with an accepted secret.
    ///
    /// The time that this takes depends on the number of secrets and the length of the path, and not on how many
    /// characters of a secret are right.
    #[must_use]
    pub fn route<'a>(&self, path: &'a str) -> Option<&'a str> {
        if let Some(file) = &self.file
            && let Some(changed) = file.look()
        {
            *self.secrets.write() = changed;
        }
        let accepted = Arc::clone(&self.secrets.read());
        let (secret, route) = split(path)?;
        let mut is_accepted = Choice::from(0);
        for known in accepted.iter() {
            is_accepted |= known.reveal().as_bytes().ct_eq(secret.as_bytes());
        }
        bool::from(is_accepted).then_some(route)
    }
}

impl fmt::Debug for AcceptedSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcceptedSecrets").field("count", &self.secrets.read().len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_secret_nothing_is_accepted() {
        let accepted = AcceptedSecrets::default();
        for path in ["/", "//", "//delete", "/delete", "/a/delete", ""] {
            assert_eq!(accepted.route(path), None, "{path}");
        }
    }

    #[test]
    fn only_paths_with_an_accepted_secret_have_a_route() {
        let [one, two, three] = [0xab, 2, 3].map(|number| PathSecret::of_random([number; 32]));
        let accepted = AcceptedSecrets::default();
        assert!(accepted.replace(vec![one.clone(), two.clone()]));
        assert!(!accepted.replace(vec![one.clone(), two.clone()]), "the same secrets");
        assert_eq!(accepted.route(&one.path("/delete")), Some("/delete"));
        assert_eq!(accepted.route(&two.path("/evict")), Some("/evict"));
        let short = &one.reveal()[..63];
        for path in [
            "/delete".to_owned(),
            three.path("/delete"),
            format!("//{}/delete", one.reveal()),
            format!("/{short}/delete"),
            format!("/{}0/delete", one.reveal()),
            format!("/{}/delete", one.reveal().to_uppercase()),
            format!("/{}", one.reveal()),
            format!("/{}/", one.reveal()),
            format!("/delete/{}", one.reveal()),
            format!("/{}%2Fdelete", one.reveal()),
        ] {
            assert_eq!(accepted.route(&path), None, "{path}");
        }
        assert!(accepted.replace(vec![three.clone()]));
        assert_eq!(
            (accepted.route(&one.path("/evict")), accepted.route(&three.path("/a"))),
            (None, Some("/a"))
        );
        assert!(!format!("{accepted:?}").contains("0303"), "secrets are not shown");
    }
}
