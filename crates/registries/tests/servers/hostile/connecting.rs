//! Why there is no connection.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use async_trait::async_trait;
use podward_registries::{Connection, Dialer, DirectDialer, RegistryErrorKind};
use tokio::net::TcpStream;

use super::{Clients, etcd, over_http, read_fails, zookeeper};
use crate::common::connection;

const RESOLVED: &str = "10.20.30.40";

/// As the errors of a dialer with an address policy.
#[derive(Debug)]
struct Refused(io::Error);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "could not connect to {RESOLVED}:80: {}", self.0)
    }
}

impl Error for Refused {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}

type Dial = fn() -> io::Error;

/// Opens no connection.
#[derive(Debug)]
struct Closed(Dial);

#[async_trait]
impl Dialer for Closed {
    async fn dial(&self, _: &str, _: u16) -> io::Result<TcpStream> {
        Err((self.0)())
    }
}

/// Returns the clients of all kinds for a host.
fn all(host: &str, dialer: Arc<dyn Dialer>) -> Result<Clients> {
    let at = |address: String| Connection {
        dialer: Arc::clone(&dialer),
        timeout: Duration::from_secs(10),
        ..connection(vec![address])
    };
    let mut clients = over_http(&at(format!("http://{host}:1")))?;
    clients.push(("Etcd", Arc::new(etcd(&at(format!("{host}:1")))?)));
    clients.push(("ZooKeeper", Arc::new(zookeeper(&at(format!("{host}:1")))?)));
    Ok(clients)
}

#[tokio::test]
async fn the_reason_is_shown_and_the_resolved_address_is_not() -> Result<()> {
    let cases: [(Dial, &str); 3] = [
        (|| io::Error::other(Refused(io::ErrorKind::ConnectionRefused.into())), "connection refused"),
        (|| io::Error::other(Refused(io::ErrorKind::TimedOut.into())), "no answer in time"),
        (|| io::Error::other(Refused(io::Error::other("something else"))), "could not connect"),
    ];
    for (dial, text) in cases {
        for (kind, registry) in all("registry.test", Arc::new(Closed(dial)))? {
            let error = read_fails(&*registry).await?;
            assert_eq!(error.kind, RegistryErrorKind::Unavailable, "{kind}: {error}");
            assert!(error.reason.contains(text), "{kind}: {error}");
            assert!(!format!("{error} {error:?}").contains(RESOLVED), "{kind}: {error}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_name_that_is_not_known_is_said_to_be_so() -> Result<()> {
    for (kind, registry) in all("registry.invalid", Arc::new(DirectDialer))? {
        let error = read_fails(&*registry).await?;
        assert_eq!(error.kind, RegistryErrorKind::Unavailable, "{kind}: {error}");
        assert!(error.reason.contains("could not be resolved"), "{kind}: {error}");
    }
    Ok(())
}
