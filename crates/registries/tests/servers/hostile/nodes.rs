//! A ZooKeeper with too many nodes, or with too large ones.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use podward_registries::{Instance, Registry as _, RegistryErrorKind};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::{read_fails, zookeeper};
use crate::common::{connection, instance, service};

const GET_DATA: i32 = 4;

/// The bodies of the answers: to a call that lists nodes, and to one that reads a node.
struct Bodies {
    nodes: Vec<u8>,
    node: Vec<u8>,
}

fn number(number: usize) -> Vec<u8> {
    i32::try_from(number).unwrap_or(i32::MAX).to_be_bytes().to_vec()
}

fn text(bytes: &[u8]) -> Vec<u8> {
    [number(bytes.len()).as_slice(), bytes].concat()
}

/// Returns the answer with the names of nodes, each of a length from 5 on.
fn names(count: usize, length: usize) -> Vec<u8> {
    let mut names = number(count);
    for name in 0..count {
        names.extend(text(&[format!("{name:05}").as_bytes(), &vec![b'x'; length - 5]].concat()));
    }
    names
}

/// Returns the answer with the data of a node.
fn node(data: &[u8]) -> Vec<u8> {
    [text(data).as_slice(), &[0; 68]].concat()
}

/// Starts a server. Returns `host:port`.
async fn serve(bodies: Bodies) -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    let bodies = Arc::new(bodies);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream, Arc::clone(&bodies)));
        }
    });
    Ok(address)
}

async fn answer(mut stream: TcpStream, bodies: Arc<Bodies>) -> Result<()> {
    let mut is_open = false;
    loop {
        let length = usize::try_from(stream.read_u32().await?)?;
        let mut request = vec![0; length];
        stream.read_exact(&mut request).await?;
        let packet = match is_open {
            // The version, the timeout, the session and its password.
            false => [number(0), number(30_000), vec![0; 8], text(&[0; 16])].concat(),
            true => {
                let body = match request[4..8] == GET_DATA.to_be_bytes() {
                    true => &bodies.node,
                    false => &bodies.nodes,
                };
                [&request[..4], &[0; 12], body.as_slice()].concat()
            }
        };
        is_open = true;
        stream.write_all(&text(&packet)).await?;
    }
}

#[tokio::test]
async fn ten_thousand_nodes_are_read() -> Result<()> {
    let data = br#"{"address":"10.0.0.1","port":1}"#;
    // The names alone are a large answer.
    let address = serve(Bodies { nodes: names(10_000, 60), node: node(data) }).await?;
    let found = zookeeper(&connection(vec![address]))?.instances(0, &service("web")).await?;
    assert_eq!(found.len(), 10_000);
    Ok(())
}

/// What nobody understands may be any instance.
#[tokio::test]
async fn a_node_that_cannot_be_read_is_not_absent() -> Result<()> {
    for (data, is_read) in [
        ("", true),
        (r#"{"address":"10.0.0.1"}"#, true),
        ("10.0.0.1", false),
        (r#"{"port":1}"#, false),
        (r#"{"address":"10.0.0.1","port":70000}"#, false),
    ] {
        let address = serve(Bodies { nodes: names(1, 5), node: node(data.as_bytes()) }).await?;
        let zookeeper = zookeeper(&connection(vec![address]))?;
        let (web, wanted) =
            (service("web"), Instance { id: "00000".to_owned(), ..instance("1", "10.0.0.1") });
        let read = [
            zookeeper.instances(0, &web).await.map(|found| found.len()),
            zookeeper.instance(0, &web, &wanted).await.map(|found| found.iter().count()),
        ];
        for read in read {
            let Err(error) = read else {
                assert_eq!((is_read, read), (true, Ok(0)), "{data}");
                continue;
            };
            assert!(!is_read && error.reason.contains("/services/web/00000"), "{data}: {error}");
            assert_eq!(error.kind, RegistryErrorKind::Invalid, "{data}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn more_or_larger_nodes_are_not_read() -> Result<()> {
    for (nodes, data, limit) in [
        (names(20_001, 5), 1, "more than 20000 entries"),
        (names(10, 4 << 20), 1, "more than 24 MiB"),
        (names(1_000, 5), 60 << 10, "more than 24 MiB"),
        (names(1, 5), 100 << 10, "an instance has more than 64 KiB"),
        (names(1, 5), 300 << 10, "an instance has more than 64 KiB"),
    ] {
        let mut instance = br#"{"address":"10.0.0.1","port":1}"#.to_vec();
        instance.resize(instance.len().max(data), b' ');
        let address = serve(Bodies { nodes, node: node(&instance) }).await?;
        let error = read_fails(&zookeeper(&connection(vec![address]))?).await.context(limit)?;
        assert_eq!(error.kind, RegistryErrorKind::Invalid, "{error}");
        assert!(error.reason.contains(limit), "{limit}: {error}");
    }
    Ok(())
}
