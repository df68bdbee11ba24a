//! Credentials for registries, from docker's `config.json`, where `docker login`, `podman login` and `oras login` store
//! them.

use std::{collections::BTreeMap, fmt, io::ErrorKind, path::PathBuf, process::Stdio};

use anyhow::{Context, Result, ensure};
use base64::{Engine, prelude::BASE64_STANDARD};
use serde::Deserialize;
use tokio::{io::AsyncWriteExt, process::Command};

/// Credentials for a registry.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Credentials {
    /// A name and a password.
    Password { user: String, password: String },
    /// A refresh token, to be exchanged for access tokens.
    Token(String),
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(..)")
    }
}

/// The part of docker's `config.json` that is used.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct DockerConfig {
    auths: BTreeMap<String, AuthEntry>,
    cred_helpers: BTreeMap<String, String>,
    creds_store: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AuthEntry {
    auth: String,
    username: String,
    password: String,
    identitytoken: String,
}

impl fmt::Debug for AuthEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AuthEntry(..)")
    }
}

/// The output of a credential helper.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct HelperCredentials {
    username: String,
    secret: String,
}

impl Credentials {
    /// Returns the credentials for `host`, or `None` if there are none.
    ///
    /// # Errors
    /// When docker's `config.json` cannot be read or parsed, or a credential helper fails.
    pub(crate) async fn of(host: &str) -> Result<Option<Self>> {
        let Some(folder) = std::env::var_os("DOCKER_CONFIG")
            .map(PathBuf::from)
            .or_else(|| Some(std::env::home_dir()?.join(".docker")))
        else {
            return Ok(None);
        };
        let file = folder.join("config.json");
        let text = match std::fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", file.display())),
        };
        let config: DockerConfig =
            serde_json::from_str(&text).with_context(|| format!("cannot parse {}", file.display()))?;
        match config.helper(host) {
            Some(helper) => match run_helper(helper, host).await? {
                Some(credentials) => Ok(Some(credentials)),
                None => config.inline(host),
            },
            None => config.inline(host),
        }
    }
}

impl DockerConfig {
    /// Returns the name of the credential helper for `host`.
    fn helper(&self, host: &str) -> Option<&str> {
        let own = self.cred_helpers.iter().find(|(key, _)| is_key_of(key, host)).map(|(_, helper)| &**helper);
        own.or(Some(&*self.creds_store)).filter(|helper| !helper.is_empty())
    }

    /// Returns the credentials for `host` that are in the file itself.
    fn inline(&self, host: &str) -> Result<Option<Credentials>> {
        let entry = self.auths.iter().find(|(key, _)| is_key_of(key, host)).map(|(_, entry)| entry);
        let Some(entry) = entry else { return Ok(None) };
        if !entry.identitytoken.is_empty() {
            return Ok(Some(Credentials::Token(entry.identitytoken.clone())));
        }
        if entry.auth.is_empty() {
            let AuthEntry { username, password, .. } = entry;
            let both = (!username.is_empty()).then(|| (username.clone(), password.clone()));
            return Ok(both.map(|(user, password)| Credentials::Password { user, password }));
        }
        let decoded =
            BASE64_STANDARD.decode(entry.auth.trim()).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let (user, password) =
            decoded.as_deref().and_then(|both| both.split_once(':')).with_context(|| {
                format!("the entry for {host} in docker's config.json is not USER:PASSWORD in base64")
            })?;
        Ok(Some(Credentials::Password {
            user: user.to_owned(),
            password: password.trim_end_matches('\0').to_owned(),
        }))
    }
}

/// Returns true if the entry `key` is for the registry `host`. A key can be a URL; that of Docker Hub has the host name
/// of an older registry.
fn is_key_of(key: &str, host: &str) -> bool {
    let key = key.trim_start_matches("https://").trim_start_matches("http://");
    let key = key.split('/').next().unwrap_or_default();
    key == host || (host == "docker.io" && ["index.docker.io", "registry-1.docker.io"].contains(&key))
}

/// Runs a credential helper, which reads the registry's name from its standard input and prints JSON. Returns `None` if
/// it has no credentials for `host`.
async fn run_helper(helper: &str, host: &str) -> Result<Option<Credentials>> {
    let program = format!("docker-credential-{helper}");
    let registry = if host == "docker.io" { "https://index.docker.io/v1/" } else { host };
    let mut child = Command::new(&program)
        .arg("get")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| {
            format!("cannot run {program}, which docker's config.json names for {host}: install it")
        })?;
    if let Some(mut input) = child.stdin.take() {
        // A helper that fails before it reads its input reports that by its exit code.
        let _ = input.write_all(registry.as_bytes()).await;
    }
    let output = child.wait_with_output().await.with_context(|| format!("run {program}"))?;
    let output_text = String::from_utf8_lossy(&output.stdout);
    if output.status.success() {
        return parse_helper_output(&output_text)
            .with_context(|| format!("parse the credentials that {program} printed"))
            .map(Some);
    }
    // Helpers have no separate exit code for this.
    let unknown = output_text.contains("credentials not found");
    ensure!(unknown, "{program} failed: {}", output_text.trim());
    Ok(None)
}

fn parse_helper_output(text: &str) -> Result<Credentials> {
    let HelperCredentials { username, secret } = serde_json::from_str(text)?;
    Ok(match &*username {
        "<token>" => Credentials::Token(secret),
        _ => Credentials::Password { user: username, password: secret },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn password(user: &str, password: &str) -> Credentials {
        Credentials::Password { user: user.to_owned(), password: password.to_owned() }
    }

    #[test]
    fn entries_are_found_by_the_registrys_name() {
        let config: DockerConfig = serde_json::from_str(
            r#"{
                "auths": {
                    "registry.example.com": {"auth": "bWU6cGE6c3M="},
                    "https://index.docker.io/v1/": {"username": "hub", "password": "x"},
                    "tokens.example.com": {"identitytoken": "t", "auth": "bWU6"},
                    "broken.example.com": {"auth": "!"},
                    "elsewhere.example.com": {}
                },
                "credHelpers": {"cloud.example.com": "cloud"},
                "psFormat": "x"
            }"#,
        )
        .expect("a config");
        let of = |host: &str| config.inline(host).expect("an entry that can be read");
        assert_eq!(of("registry.example.com"), Some(password("me", "pa:ss")));
        assert_eq!(of("docker.io"), Some(password("hub", "x")));
        assert_eq!(of("tokens.example.com"), Some(Credentials::Token("t".to_owned())));
        assert_eq!((of("elsewhere.example.com"), of("example.com")), (None, None));
        config.inline("broken.example.com").expect_err("no base64");
        assert_eq!(config.helper("cloud.example.com"), Some("cloud"));
        assert_eq!(config.helper("registry.example.com"), None);
    }

    #[test]
    fn helpers_return_passwords_and_tokens() {
        let output = |user: &str| format!(r#"{{"ServerURL": "x", "Username": "{user}", "Secret": "s"}}"#);
        assert_eq!(parse_helper_output(&output("me")).expect("a password"), password("me", "s"));
        assert_eq!(
            parse_helper_output(&output("<token>")).expect("a token"),
            Credentials::Token("s".to_owned())
        );
        parse_helper_output("credentials not found").expect_err("no JSON");
    }
}
