//! Answers to logins.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result};
use podward_registries::{Connection, Credentials, Nacos, RegistryErrorKind};

use super::read_fails;
use super::size::{LIMIT, list};
use super::stubs::serve_paths;
use crate::common::connection;

/// A read of a large service logs in again before its second list. The login must not wait for the right to read much, which
/// the read itself has.
#[tokio::test]
async fn a_large_answer_to_a_login_does_not_stop_large_reads() -> Result<()> {
    let has_read = Arc::new(AtomicBool::new(false));
    let url = serve_paths(move |path| match path.contains("/login") {
        true => {
            let filler = if has_read.load(Ordering::Relaxed) { " ".repeat(300 << 10) } else { String::new() };
            format!(r#"{{"accessToken":"t","tokenTtl":0}}{filler}"#)
        }
        false => {
            let is_read = path.contains("serviceName=web");
            has_read.fetch_or(is_read, Ordering::Relaxed);
            list("Nacos", if is_read { 10_000 } else { 0 })
        }
    })
    .await?;
    let credentials = Credentials::Password { user: "u".to_owned(), password: "p".into() };
    let connection = Connection { credentials, ..connection(vec![url]) };
    let nacos = Nacos::new(&connection).map_err(anyhow::Error::msg)?;
    let error = tokio::time::timeout(LIMIT, read_fails(&nacos)).await.context("it does not end")??;
    assert_eq!(error.kind, RegistryErrorKind::Invalid, "{error}");
    assert!(error.reason.contains("login has more than 256 KiB"), "{error}");
    Ok(())
}
