//! Reads the number of requests in flight from a pod.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use crate::clock::Clock;
use crate::index::TargetPod;
use crate::verdict::InFlightCount;

/// The label of a pod that reports its requests in flight: the port where `GET /in-flight` returns a decimal number.
pub(crate) const PORT_LABEL: &str = "podward.io/in-flight-port";

const REQUEST_TIMEOUT: Duration = Duration::from_secs(1);
/// The maximum size of a response in bytes. A number with a line break fits.
const MAX_RESPONSE: usize = 64;

/// The HTTP client for pods.
#[derive(Clone, Debug)]
pub(crate) struct InFlightClient {
    client: Client<HttpConnector, Empty<Bytes>>,
}

impl InFlightClient {
    pub(crate) fn new() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(REQUEST_TIMEOUT));
        // The pod would count a connection that is kept open.
        let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector);
        Self { client }
    }

    /// Reads the number from `pod`, which has the label [`PORT_LABEL`].
    pub(crate) async fn read(&self, pod: &TargetPod, clock: Clock) -> InFlightCount {
        let asked = clock.now();
        let answer = match address_of(pod) {
            Ok(address) => tokio::time::timeout(REQUEST_TIMEOUT, self.get(address))
                .await
                .unwrap_or_else(|_| Err(format!("no response within {} s", REQUEST_TIMEOUT.as_secs()))),
            Err(why) => Err(why),
        };
        match answer {
            Ok(count) => InFlightCount::Count(count, asked),
            Err(why) => InFlightCount::Failed(why),
        }
    }

    async fn get(&self, address: SocketAddr) -> Result<u64, String> {
        let url = format!("http://{address}/in-flight");
        let uri = url.parse().map_err(|error| format!("invalid URL {url:?}: {error}"))?;
        let response =
            self.client.get(uri).await.map_err(|error| format!("{url}: {:#}", anyhow::Error::from(error)))?;
        if !response.status().is_success() {
            return Err(format!("{url} returns {}", response.status()));
        }
        let body = Limited::new(response.into_body(), MAX_RESPONSE).collect().await;
        let body = body.map_err(|error| format!("{url}: {error}"))?.to_bytes();
        let text = String::from_utf8_lossy(&body);
        text.trim()
            .parse()
            .map_err(|_| format!("{url} returns {:?}, which is not a decimal number", text.trim()))
    }
}

fn address_of(pod: &TargetPod) -> Result<SocketAddr, String> {
    let port = pod.labels.get(PORT_LABEL).map(String::as_str).unwrap_or_default();
    let port = port.parse().ok().filter(|port: &u16| *port != 0);
    let port = port.ok_or_else(|| format!("the value of the label {PORT_LABEL} is not a port number"))?;
    let address: Option<&IpAddr> = pod.addresses.first();
    address.map(|address| SocketAddr::new(*address, port)).ok_or_else(|| "the pod has no address".to_owned())
}
