//! Asks a pod how many requests and connections are in flight at it.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use crate::clock::Clock;
use crate::scraper::text_of;
use crate::verdict::Flight;
use crate::world::PodId;

/// The label of a pod that tells of what is in flight: the port at which `GET /in-flight` answers with a decimal number.
pub(crate) const PORT_LABEL: &str = "podward.io/in-flight-port";

const PATIENCE: Duration = Duration::from_secs(1);
/// A number and a line's end.
const LONGEST_ANSWER: usize = 64;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct InFlight {
    client: Client<HttpConnector, Empty<Bytes>>,
}

impl InFlight {
    pub(crate) fn new() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(PATIENCE));
        // A kept connection would be one of those that the pod counts.
        let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector);
        Self { client }
    }

    /// Asks `pod`, which has the label.
    pub(crate) async fn ask(&self, pod: &PodId, clock: Clock) -> Flight {
        let asked = clock.now();
        let answer = match address_of(pod) {
            Ok(address) => tokio::time::timeout(PATIENCE, self.get(address))
                .await
                .unwrap_or_else(|_| Err(format!("no answer within {} s", PATIENCE.as_secs()))),
            Err(why) => Err(why),
        };
        match answer {
            Ok(count) => Flight::Count(count, asked),
            Err(why) => Flight::Failed(why),
        }
    }

    async fn get(&self, address: SocketAddr) -> Result<u64, String> {
        let url = format!("http://{address}/in-flight");
        let uri = url.parse().map_err(|error| format!("{url:?} is no URL: {error}"))?;
        let response = self.client.get(uri).await.map_err(|error| format!("{url}: {}", text_of(&error)))?;
        if !response.status().is_success() {
            return Err(format!("{url} answers {}", response.status()));
        }
        let body = Limited::new(response.into_body(), LONGEST_ANSWER).collect().await;
        let body = body.map_err(|error| format!("{url}: {error}"))?.to_bytes();
        let text = String::from_utf8_lossy(&body);
        text.trim()
            .parse()
            .map_err(|_| format!("{url} answers {:?}, which is no decimal number", text.trim()))
    }
}

fn address_of(pod: &PodId) -> Result<SocketAddr, String> {
    let port = pod.labels.get(PORT_LABEL).map(String::as_str).unwrap_or_default();
    let port = port.parse().ok().filter(|port: &u16| *port != 0);
    let port = port.ok_or_else(|| format!("the value of its label {PORT_LABEL} is no port"))?;
    let address: Option<&IpAddr> = pod.addresses.first();
    address.map(|address| SocketAddr::new(*address, port)).ok_or_else(|| "it has no address".to_owned())
}
