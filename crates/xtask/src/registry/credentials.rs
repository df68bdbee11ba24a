//! Who we are to registries: what `docker login` (and podman's, oras's) left in docker's `config.json`.

use std::{collections::BTreeMap, fmt, io::ErrorKind, path::PathBuf, process::Stdio};

use anyhow::{Context, Result, ensure};
use base64::{Engine, prelude::BASE64_STANDARD};
use serde::Deserialize;
use tokio::{io::AsyncWriteExt, process::Command};

/// What a registry is told about us.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Credentials {
    /// A name and a password.
    Password {
        /// The name.
        user: String,
        /// The password.
        password: String,
    },
    /// What access tokens are given for.
    Token(String),
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(..)")
    }
}

/// What is needed of the file.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Config {
    auths: BTreeMap<String, Entry>,
    cred_helpers: BTreeMap<String, String>,
    creds_store: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Entry {
    auth: String,
    username: String,
    password: String,
    identitytoken: String,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Entry(..)")
    }
}

/// What a credential helper prints.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Helped {
    username: String,
    secret: String,
}

impl Credentials {
    /// Those for `host`, if there are any.
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
        let config: Config =
            serde_json::from_str(&text).with_context(|| format!("cannot understand {}", file.display()))?;
        match config.helper(host) {
            Some(helper) => match ask(helper, host).await? {
                Some(credentials) => Ok(Some(credentials)),
                None => config.inline(host),
            },
            None => config.inline(host),
        }
    }
}

impl Config {
    /// The program that knows the credentials for `host`.
    fn helper(&self, host: &str) -> Option<&str> {
        let own = self.cred_helpers.iter().find(|(key, _)| means(key, host)).map(|(_, helper)| &**helper);
        own.or(Some(&*self.creds_store)).filter(|helper| !helper.is_empty())
    }

    fn inline(&self, host: &str) -> Result<Option<Credentials>> {
        let entry = self.auths.iter().find(|(key, _)| means(key, host)).map(|(_, entry)| entry);
        let Some(entry) = entry else { return Ok(None) };
        if !entry.identitytoken.is_empty() {
            return Ok(Some(Credentials::Token(entry.identitytoken.clone())));
        }
        if entry.auth.is_empty() {
            let Entry { username, password, .. } = entry;
            let both = (!username.is_empty()).then(|| (username.clone(), password.clone()));
            return Ok(both.map(|(user, password)| Credentials::Password { user, password }));
        }
        let decoded =
            BASE64_STANDARD.decode(entry.auth.trim()).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let (user, password) =
            decoded.as_deref().and_then(|both| both.split_once(':')).with_context(|| {
                format!("the entry for {host} in docker's config.json is not NAME:PASSWORD in base64")
            })?;
        Ok(Some(Credentials::Password {
            user: user.to_owned(),
            password: password.trim_end_matches('\0').to_owned(),
        }))
    }
}

/// Whether an entry `key` is about the registry `host`. Keys may be URLs; that of Docker Hub is one of a registry of long ago.
fn means(key: &str, host: &str) -> bool {
    let key = key.trim_start_matches("https://").trim_start_matches("http://");
    let key = key.split('/').next().unwrap_or_default();
    key == host || (host == "docker.io" && ["index.docker.io", "registry-1.docker.io"].contains(&key))
}

/// Asks a credential helper: the registry's name on its standard input, JSON on its standard output.
async fn ask(helper: &str, host: &str) -> Result<Option<Credentials>> {
    let program = format!("docker-credential-{helper}");
    let about = if host == "docker.io" { "https://index.docker.io/v1/" } else { host };
    let mut child = Command::new(&program)
        .arg("get")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| {
            format!("docker's config.json has the credentials for {host} in {program}, which can't be run")
        })?;
    if let Some(mut input) = child.stdin.take() {
        // One that reads nothing says why by its exit code.
        let _ = input.write_all(about.as_bytes()).await;
    }
    let output = child.wait_with_output().await.with_context(|| format!("run {program}"))?;
    let said = String::from_utf8_lossy(&output.stdout);
    if output.status.success() {
        return helped(&said)
            .with_context(|| format!("{program} printed something else than credentials"))
            .map(Some);
    }
    // It has no exit code of its own for this.
    let unknown = said.contains("credentials not found");
    ensure!(unknown, "{program} failed: {}", said.trim());
    Ok(None)
}

fn helped(said: &str) -> Result<Credentials> {
    let Helped { username, secret } = serde_json::from_str(said)?;
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
        let config: Config = serde_json::from_str(
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
    fn helpers_give_passwords_and_tokens() {
        let said = |user: &str| format!(r#"{{"ServerURL": "x", "Username": "{user}", "Secret": "s"}}"#);
        assert_eq!(helped(&said("me")).expect("a password"), password("me", "s"));
        assert_eq!(helped(&said("<token>")).expect("a token"), Credentials::Token("s".to_owned()));
        helped("credentials not found").expect_err("no JSON");
    }
}
