//! The contents of the Secrets of a connection.

use std::collections::BTreeMap;

use podward_registries::Credentials;
use secrecy::SecretString;

/// What the Secrets of a connection contain. `Debug` does not show it.
#[derive(Clone, Debug, Default)]
pub struct RegistrySecrets {
    /// Who Podward is.
    pub credentials: Credentials,
    /// The certificate chain of Podward and its private key, in PEM.
    pub identity: Option<(String, SecretString)>,
}

impl RegistrySecrets {
    /// Reads credentials: the key `token`, or the keys `username` and `password`. An error is a text for people, without
    /// values.
    ///
    /// # Errors
    /// Fails if keys are missing or the values are no text.
    pub fn credentials(data: &BTreeMap<String, Vec<u8>>) -> Result<Credentials, String> {
        match (text(data, "token")?, text(data, "username")?, text(data, "password")?) {
            (Some(token), None, None) => Ok(Credentials::Token(token.into())),
            (None, Some(user), Some(password)) => {
                Ok(Credentials::Password { user, password: password.into() })
            }
            _ => Err("must have the key token, or the keys username and password".to_owned()),
        }
    }

    /// Reads a certificate chain and its private key: the keys `tls.crt` and `tls.key`. An error is a text for people,
    /// without values.
    ///
    /// # Errors
    /// Fails if keys are missing or the values are no text.
    pub fn identity(data: &BTreeMap<String, Vec<u8>>) -> Result<(String, SecretString), String> {
        match (text(data, "tls.crt")?, text(data, "tls.key")?) {
            (Some(chain), Some(key)) => Ok((chain, key.into())),
            _ => Err("must have the keys tls.crt and tls.key".to_owned()),
        }
    }
}

fn text(data: &BTreeMap<String, Vec<u8>>, key: &str) -> Result<Option<String>, String> {
    let Some(value) = data.get(key) else { return Ok(None) };
    let text = std::str::from_utf8(value).map_err(|_| format!("the value of the key {key} is no text"))?;
    // Files often end with a line feed, which is no part of a password.
    Ok(Some(text.trim_end_matches(['\r', '\n']).to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(entries: &[(&str, &str)]) -> BTreeMap<String, Vec<u8>> {
        entries.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect()
    }

    #[test]
    fn credentials_are_a_token_or_a_password() {
        use secrecy::ExposeSecret;
        let token = RegistrySecrets::credentials(&data(&[("token", "abc\n")])).unwrap();
        assert!(matches!(&token, Credentials::Token(token) if token.expose_secret() == "abc"));
        assert!(!format!("{token:?}").contains("abc"));
        let password = RegistrySecrets::credentials(&data(&[("username", "u"), ("password", "p")])).unwrap();
        assert!(matches!(&password, Credentials::Password { user, .. } if user == "u"));
        for bad in [data(&[]), data(&[("username", "u")]), data(&[("token", "t"), ("username", "u")])] {
            assert!(RegistrySecrets::credentials(&bad).is_err(), "{:?}", bad.keys());
        }
        assert!(RegistrySecrets::credentials(&[("token".to_owned(), vec![0xff])].into()).is_err());
        assert!(RegistrySecrets::identity(&data(&[("tls.crt", "c")])).is_err());
    }
}
