//! Keys of etcd whose values are no instances.

use anyhow::{Context as _, Result};
use podward_registries::{Etcd, EtcdOptions, EtcdTemplate, Registry as _, RegistryErrorKind};

use super::stubs::{last_page, serve_grpc};
use crate::common::{connection, refused, service};

/// As Podward names its instances.
const OURS: &str = "shop.web-0.0f1c7a52-6d0e-4d5c-9a53-1f6a1f0c9c11.8080";

async fn client(key: String, template: Option<&str>) -> Result<Etcd> {
    let address = serve_grpc(move || last_page(std::slice::from_ref(&key)), "0", "").await?;
    let template = template.map(|key| EtcdTemplate {
        key: key.to_owned(),
        value: r#"{"host": "${host}", "port": "${port}", "tags": "${metadata}"}"#.to_owned(),
    });
    let prefix = if template.is_some() { String::new() } else { "/s".to_owned() };
    Etcd::new(&connection(vec![address]), &EtcdOptions { prefix, template, lease: None })
        .map_err(anyhow::Error::msg)
}

/// The key may be that of a pod, so it does not count as absence.
#[tokio::test]
async fn a_value_that_cannot_be_read_is_not_absent() -> Result<()> {
    let (by_id, by_address) = (Some("/s/${service}/${id}"), Some("/s/${service}/${host}:${port}"));
    for (template, rest, may_be_ours) in [
        (None, OURS, true),
        (None, "config", false),
        (None, "10.0.0.9:80", false),
        (by_id, OURS, true),
        (by_id, "config", false),
        (by_address, "10.0.0.9:80", true),
        (by_address, "[fd00::7]:80", true),
        (by_address, "config:80", false),
    ] {
        let key = format!("/s/web/{rest}");
        let read = client(key.clone(), template).await?.instances(0, &service("web")).await;
        if !may_be_ours {
            assert_eq!(read, Ok(Vec::new()), "{key}");
            continue;
        }
        let error = refused(read).context(key.clone())?;
        assert_eq!(error.kind, RegistryErrorKind::Invalid, "{error}");
        assert!(error.reason.contains(&format!("{key:?}")), "{error}");
    }
    Ok(())
}
