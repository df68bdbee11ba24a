//! What an answer contains is not shown to the user who wrote the address.

use anyhow::{Context as _, Result};
use podward_registries::{Change, RegistryErrorKind};

use super::stubs::{serve_grpc, serve_http};
use super::{etcd, over_http, read_fails};
use crate::common::{connection, instance, refused, service, write};

const SECRET: &str = "internal-5d0f7c1e";

#[tokio::test]
async fn no_text_of_an_answer_over_http_is_shown() -> Result<()> {
    let bodies = [
        SECRET.to_owned(),
        format!("\"{SECRET}\""),
        format!(r#"{{"{SECRET}":["{SECRET}"]}}"#),
        format!(r#"[{{"Node":"{SECRET}","host":"{SECRET}"}}]"#),
        format!(r#"{{"application":"{SECRET}","instance":"{SECRET}","Services":"{SECRET}"}}"#),
        format!(r#"{{"code":30000,"message":"{SECRET}","data":"{SECRET}"}}"#),
        format!(r#"{{"Errors":[{{"OpIndex":1,"What":"{SECRET}"}}]}}"#),
    ];
    for (status, kind) in [
        (200, None),
        (302, Some(RegistryErrorKind::Rejected)),
        (400, Some(RegistryErrorKind::Rejected)),
        (401, Some(RegistryErrorKind::Denied)),
        (403, Some(RegistryErrorKind::Denied)),
        (409, Some(RegistryErrorKind::Rejected)),
        (500, Some(RegistryErrorKind::Unavailable)),
    ] {
        for body in &bodies {
            let url = serve_http(status, body.clone().into(), false).await?;
            for (name, registry) in over_http(&connection(vec![url]))? {
                let read = registry.instances(0, &service("web")).await.err();
                let change = Change::Register(service("web"), instance("1", "10.0.0.7"));
                let written = write(&*registry, change).await.err();
                for error in read.iter().chain(&written) {
                    let text = format!("{error} {error:?}");
                    assert!(!text.contains(SECRET), "{name}: {status}: {text}");
                }
                let Some(kind) = kind else { continue };
                let error = read.with_context(|| format!("{name}: {status}"))?;
                assert_eq!(error.kind, kind, "{name}: {error}");
                assert!(error.reason.contains(&format!("HTTP status {status}")), "{name}: {error}");
            }
        }
    }
    Ok(())
}

#[tokio::test]
async fn no_text_of_an_answer_of_etcd_is_shown() -> Result<()> {
    let web = service("web");
    let change = || Change::Register(web.clone(), instance("1", "10.0.0.7"));
    for status in ["2", "3", "5", "7", "9", "13", "14", "16"] {
        let address = serve_grpc(Vec::new, status, SECRET).await?;
        let etcd = etcd(&connection(vec![address]))?;
        for error in [read_fails(&etcd).await?, refused(write(&etcd, change()).await)?] {
            assert!(!format!("{error} {error:?}").contains(SECRET), "{error}");
        }
    }
    // What etcd itself says is known, and helps.
    let denied = "etcdserver: permission denied";
    let address = serve_grpc(Vec::new, "7", denied).await?;
    let error = read_fails(&etcd(&connection(vec![address]))?).await?;
    assert_eq!(error.kind, RegistryErrorKind::Denied, "{error}");
    assert!(error.reason.contains(denied) && error.reason.contains("check the credentials"), "{error}");
    Ok(())
}
