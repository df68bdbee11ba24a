//! Answers that are too large, or never end.

use std::io::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use flate2::Compression;
use flate2::write::GzEncoder;
use hyper::body::Bytes;
use podward_registries::{Connection, RegistryErrorKind};

use super::stubs::{page, serve_grpc, serve_http};
use super::{etcd, over_http, read_fails};
use crate::common::connection;

/// A client that reads until the process ends does not fail in this time.
pub(super) const LIMIT: Duration = Duration::from_secs(30);

fn packed(body: &[u8]) -> Result<Bytes> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(body)?;
    Ok(encoder.finish()?.into())
}

/// Returns lists of empty instances as each kind of registry sends them.
pub(super) fn list(kind: &str, instances: usize) -> String {
    let many = |one: &str| vec![one; instances].join(",");
    match kind {
        "Consul" => {
            format!(
                "[{}]",
                many(r#"{"Node":{"Node":"n","Address":"10.0.0.1"},"Service":{"ID":"a","Port":1}}"#)
            )
        }
        "Eureka" => {
            let one = r#"{"instanceId":"a","ipAddr":"10.0.0.1","port":{"$":1,"@enabled":"true"}}"#;
            format!(r#"{{"application":{{"name":"WEB","instance":[{}]}}}}"#, many(one))
        }
        "Nacos" => format!(r#"{{"code":0,"data":{{"hosts":[{}]}}}}"#, many(r#"{"ip":"10.0.0.1","port":1}"#)),
        _ => format!("[{}]", many(r#"{"host":"10.0.0.1","port":1}"#)),
    }
}

#[tokio::test]
async fn keys_of_etcd_that_do_not_advance_end_the_read() -> Result<()> {
    let address = serve_grpc(|| page(&["/s/web/a".to_owned()]), "0", "").await?;
    let error = tokio::time::timeout(LIMIT, read_fails(&etcd(&connection(vec![address]))?)).await;
    let error = error.context("it does not end")??;
    assert_eq!(error.kind, RegistryErrorKind::Invalid, "{error}");
    assert!(error.reason.contains("after the last one"), "{error}");
    Ok(())
}

#[tokio::test]
async fn an_etcd_that_always_has_more_ends_the_read() -> Result<()> {
    let next = AtomicUsize::new(0);
    let keys = move || {
        let first = next.fetch_add(100, Ordering::Relaxed);
        let keys: Vec<String> = (first..first + 100).map(|number| format!("/s/web/{number:08}")).collect();
        page(&keys)
    };
    // Values that are no instances count, too.
    let address = serve_grpc(keys, "0", "").await?;
    let error = tokio::time::timeout(LIMIT, read_fails(&etcd(&connection(vec![address.clone()]))?)).await;
    let error = error.context("it does not end")??;
    assert_eq!((error.kind, error.address), (RegistryErrorKind::Invalid, address));
    assert!(error.reason.contains("more than 20000 "), "{}", error.reason);
    Ok(())
}

#[tokio::test]
async fn an_answer_of_too_many_bytes_is_not_read() -> Result<()> {
    let body = packed(format!("[{}]", " ".repeat(40 << 20)).as_bytes())?;
    let url = serve_http(200, body, true).await?;
    for (kind, registry) in over_http(&connection(vec![url]))? {
        let error = read_fails(&*registry).await.context(kind)?;
        assert_eq!(error.kind, RegistryErrorKind::Invalid, "{kind}: {error}");
        assert!(error.reason.contains("more than 24 MiB"), "{kind}: {error}");
        assert!(error.to_string().contains("of service web at http://127.0.0.1"), "{kind}: {error}");
    }
    Ok(())
}

#[tokio::test]
async fn an_answer_of_many_empty_values_is_not_parsed() -> Result<()> {
    let url = serve_http(200, packed(format!("[{}[]]", "[],".repeat(5 << 20)).as_bytes())?, true).await?;
    for (kind, registry) in over_http(&connection(vec![url]))? {
        let error = read_fails(&*registry).await.context(kind)?;
        assert_eq!(error.kind, RegistryErrorKind::Invalid, "{kind}: {error}");
        let is_limit = error.reason.contains("more than 300000 values");
        assert!(is_limit || (kind != "Http" && error.reason.contains("not as expected")), "{kind}: {error}");
    }
    Ok(())
}

#[tokio::test]
async fn ten_thousand_instances_are_read_and_far_more_are_not() -> Result<()> {
    for (kind, _) in over_http(&connection(vec!["http://a".to_owned()]))? {
        for (number, is_read) in [(10_000, true), (20_001, false)] {
            let url = serve_http(200, packed(list(kind, number).as_bytes())?, true).await?;
            let registries = over_http(&connection(vec![url]))?;
            let registry = registries.into_iter().find(|(name, _)| *name == kind).context("no client")?.1;
            let result = registry.instances(0, &crate::common::service("web")).await;
            assert_eq!(result.is_ok(), is_read, "{kind}: {number}: {:?}", result.as_ref().err());
            if let Err(error) = result {
                assert!(error.reason.contains("more than 20000 instances"), "{kind}: {error}");
            }
        }
    }
    Ok(())
}

/// Large answers are read one after the other in a process, so a server that never ends one must not stop the others.
#[tokio::test]
async fn a_large_answer_that_does_not_end_does_not_stop_others() -> Result<()> {
    let slow = slow_large_answer().await?;
    // The most of it arrives after the wait.
    let body = " ".repeat(8 << 20) + &list("Http", 10_000);
    let url = serve_http(200, body.into(), false).await?;
    let patient = Connection { timeout: Duration::from_secs(60), ..connection(vec![slow]) };
    let slow = over_http(&patient)?.remove(3).1;
    // The wait does not count.
    let hasty = Connection { timeout: Duration::from_secs(5), ..connection(vec![url]) };
    let others = over_http(&hasty)?.remove(3).1;
    let web = crate::common::service("web");
    let reads = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        others.instances(0, &web).await
    };
    let (stuck, read) = tokio::time::timeout(LIMIT, async { tokio::join!(slow.instances(0, &web), reads) })
        .await
        .context("the large answer keeps its place")?;
    assert_eq!(read?.len(), 10_000);
    assert!(stuck.is_err_and(|error| error.reason.contains("within 10 s")));
    Ok(())
}

/// Starts a server that sends a part of a large answer, and then nothing.
async fn slow_large_answer() -> Result<String> {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let _ = stream.read(&mut [0; 4096]).await;
                let head = "HTTP/1.1 200 OK\r\ncontent-length: 9000000\r\n\r\n";
                let _ = stream.write_all(head.as_bytes()).await;
                let _ = stream.write_all(&vec![b' '; 1 << 20]).await;
                std::future::pending::<()>().await;
            });
        }
    });
    Ok(url)
}
