//! Reads the connections to a pod from the node-agent of its node.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use podward_proto::v1::node_agent_client::NodeAgentClient;
use podward_proto::v1::{AwaitQuietRequest, KubeProxyPage, ReadKubeProxyRequest};
use podward_runtime::grpc_client::{BearerToken, Connect, Trust};
use podward_runtime::tls::AuthoritySource;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use crate::args::{NODE_IP, NodeAgentArgs};
use crate::index::{MAX_PORTS, TargetPod};
use crate::proxy::{ProxyPage, ReadFailure};
use crate::shared_index::SharedIndex;
use crate::verdict::{InFlightCount, OpenConnections};

/// The maximum time that an agent may wait in one call. An agent that hangs is noticed soon after it, before the quiet period
/// has passed that counts instead.
const MAX_WAIT: Duration = Duration::from_secs(1);
/// The time for the response after the time that the agent may wait.
const RESPONSE_TIME: Duration = Duration::from_millis(500);
/// The pause after a read that failed.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// The timeout of a call that reads a page of kube-proxy. The agent itself waits less long.
const PROXY_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum size of a response with a page, in bytes.
const MAX_PAGE_BYTES: usize = 9 << 20;
/// The maximum number of channels that are kept. Then those of all nodes are opened again.
const MAX_CHANNELS: usize = 5_000;

/// The node-agents of all nodes.
pub(crate) struct NodeAgents {
    url: String,
    name: String,
    trust: Arc<Trust>,
    token: BearerToken,
    channels: Mutex<HashMap<IpAddr, Channel>>,
    shared: Arc<SharedIndex>,
}

impl NodeAgents {
    pub(crate) fn new(
        url: String,
        args: &NodeAgentArgs,
        authorities: AuthoritySource,
        shared: Arc<SharedIndex>,
    ) -> Self {
        Self {
            url,
            name: args.node_agent_name.clone(),
            trust: Arc::new(Trust::new(authorities)),
            token: BearerToken::from_file(&args.node_agent_token_file),
            channels: Mutex::default(),
            shared,
        }
    }

    /// Reads the connections to `pod`: at once if nothing was received or sent on them for `quiet`, or else after
    /// `timeout` or [`MAX_WAIT`], whichever is shorter. After a failure it returns a little later, so that the caller may try again at once.
    pub(crate) async fn read(&self, pod: &TargetPod, quiet: Duration, timeout: Duration) -> InFlightCount {
        let asked = self.shared.clock.now();
        let timeout = timeout.min(MAX_WAIT);
        match self.connections(pod, quiet, timeout).await {
            Ok(connections) => InFlightCount::Connections(connections, asked),
            Err(why) => {
                tracing::debug!(pod = %pod.name, namespace = %pod.namespace, why, "the node-agent gave no connections");
                tokio::time::sleep(RETRY_INTERVAL.min(timeout)).await;
                InFlightCount::ConnectionsFailed(why)
            }
        }
    }

    async fn connections(
        &self,
        pod: &TargetPod,
        quiet: Duration,
        timeout: Duration,
    ) -> Result<OpenConnections, String> {
        let (addresses, ports) = {
            let index = self.shared.index.lock();
            (index.node_addresses(&pod.node).to_vec(), index.ports_of(pod))
        };
        let address =
            *addresses.first().ok_or_else(|| format!("its node {:?} has no InternalIP", pod.node))?;
        if pod.addresses.iter().any(|address| addresses.contains(address)) {
            return Err("the pod uses the network of its node".to_owned());
        }
        let ports = sent_ports(&ports)?;
        let channel = self.channel(address)?;
        let convert =
            |time: Duration| prost_types::Duration::try_from(time).map_err(|error| error.to_string());
        let mut request = Request::new(AwaitQuietRequest {
            pod_uid: pod.uid.to_string(),
            quiet: Some(convert(quiet)?),
            timeout: Some(convert(timeout)?),
            ports,
        });
        request.set_timeout(timeout + RESPONSE_TIME);
        let mut client = NodeAgentClient::with_interceptor(channel, self.token.clone());
        // The timeout of the request begins when there is a connection.
        let limit = timeout + RESPONSE_TIME;
        let answer = tokio::time::timeout(limit, client.await_quiet(request))
            .await
            .map_err(|_| {
                format!("the node-agent of {} did not answer within {} s", pod.node, limit.as_secs_f64())
            })?
            .map_err(|status| self.explain(&status, pod))?
            .into_inner();
        if answer.has_other_protocols {
            return Err("the pod also accepts packets over UDP or SCTP".to_owned());
        }
        if answer.open_connections > 0 && answer.silent_for.is_none() {
            return Err(format!("the node-agent of {} does not say since when they are silent", pod.node));
        }
        let silent_for = answer.silent_for.map(Duration::try_from).transpose();
        Ok(OpenConnections {
            open: answer.open_connections,
            rested: answer.rested_connections,
            silent_for: silent_for.map_err(|error| error.to_string())?.unwrap_or_default(),
        })
    }

    /// Reads a page of the kube-proxy of the node with this address.
    pub(crate) async fn read_kube_proxy(
        &self,
        address: IpAddr,
        page: KubeProxyPage,
    ) -> Result<ProxyPage, ReadFailure> {
        let fail = |why: String, hangs| ReadFailure { why, hangs };
        let channel = self.channel(address).map_err(|why| fail(why, false))?;
        let mut request = Request::new(ReadKubeProxyRequest { page: page.into() });
        request.set_timeout(PROXY_TIMEOUT);
        let mut client = NodeAgentClient::with_interceptor(channel, self.token.clone())
            .max_decoding_message_size(MAX_PAGE_BYTES);
        let answer = tokio::time::timeout(PROXY_TIMEOUT, client.read_kube_proxy(request))
            .await
            .map_err(|_| {
                let seconds = PROXY_TIMEOUT.as_secs();
                fail(format!("the node-agent at {address} did not answer within {seconds} s"), false)
            })?
            .map_err(|status| {
                let why =
                    format!("the node-agent at {address} returns {:?}: {}", status.code(), status.message());
                // The agent answers in less than the timeout of the call: kube-proxy does not.
                fail(why, status.code() == Code::DeadlineExceeded)
            })?
            .into_inner();
        let status = u16::try_from(answer.status).unwrap_or_default();
        Ok(ProxyPage {
            is_success: (200..300).contains(&status),
            status,
            date: Some(answer.date).filter(|date| !date.is_empty()),
            body: answer.body.into(),
        })
    }

    fn explain(&self, status: &Status, pod: &TargetPod) -> String {
        match status.code() {
            Code::NotFound | Code::FailedPrecondition => status.message().to_owned(),
            code => format!("the node-agent of {} returns {code:?}: {}", pod.node, status.message()),
        }
    }

    fn channel(&self, address: IpAddr) -> Result<Channel, String> {
        let mut channels = self.channels.lock();
        if let Some(channel) = channels.get(&address) {
            return Ok(channel.clone());
        }
        let host = match address {
            IpAddr::V6(address) => format!("[{address}]"),
            IpAddr::V4(address) => address.to_string(),
        };
        let connect = Connect::new(&self.url.replace(NODE_IP, &host), Arc::clone(&self.trust))
            .and_then(|connect| connect.with_server_name(&self.name))
            .and_then(|connect| connect.lazy());
        let channel = connect.map_err(|error| error.to_string())?;
        if channels.len() >= MAX_CHANNELS {
            channels.clear();
        }
        channels.insert(address, channel.clone());
        Ok(channel)
    }
}

/// Returns the ports to send to a node-agent.
///
/// # Errors
/// Fails if there are more than [`MAX_PORTS`]: the node-agent would refuse the message.
fn sent_ports(ports: &BTreeSet<u16>) -> Result<Vec<u32>, String> {
    if ports.len() > MAX_PORTS {
        return Err(format!(
            "clients reach the pod on more than {MAX_PORTS} ports, or have done so, by its containerPorts and \
             EndpointSlices"
        ));
    }
    Ok(ports.iter().copied().map(u32::from).collect())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Instant;

    use super::*;
    use crate::clock::Clock;
    use crate::index::IndexedNode;

    #[test]
    fn a_node_agent_accepts_the_most_ports_that_are_sent() {
        let ports = |number: usize| (0..=u16::MAX).rev().take(number).collect::<BTreeSet<u16>>();
        let sent = sent_ports(&ports(MAX_PORTS)).unwrap();
        assert_eq!(sent.len(), MAX_PORTS);
        // Three bytes for each port, and the other fields.
        assert!(sent.len() * 3 + 200 < 4 << 10, "MAX_MESSAGE_BYTES of the node-agent");
        let why = sent_ports(&ports(MAX_PORTS + 1)).unwrap_err();
        assert!(why.contains("more than 500 ports"), "{why}");
    }

    /// All calls to a node share one channel, which makes one connection at a time.
    #[tokio::test]
    async fn a_node_agent_that_hangs_delays_no_pod_for_longer_than_one_call() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{NODE_IP}:{}", listener.local_addr().unwrap().port());
        let token = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(token.path(), "token").unwrap();
        let args = NodeAgentArgs {
            node_agent_url: Some(url.clone()),
            node_agent_name: "node-agent".to_owned(),
            node_agent_ca: None,
            node_agent_token_file: token.path().to_owned(),
        };
        let shared = Arc::new(SharedIndex::new(Clock::start()));
        let addresses = vec!["127.0.0.1".parse().unwrap()];
        shared.index.lock().put_node(&"n1".into(), IndexedNode { addresses, ..IndexedNode::default() });
        // Nothing is signed by it.
        let authority = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let authorities = AuthoritySource::Pem(authority.cert.pem());
        let agents = NodeAgents::new(url, &args, authorities, shared);
        let pod = TargetPod {
            namespace: "shop".into(),
            name: "a".to_owned(),
            uid: "a".into(),
            addresses: vec!["10.0.0.9".parse().unwrap()],
            ports: vec![],
            labels: BTreeMap::new(),
            node: "n1".to_owned(),
            never_ready: false,
        };
        let start = Instant::now();
        let read = || agents.read(&pod, Duration::from_secs(2), Duration::from_secs(2));
        for count in <[InFlightCount; 5]>::from(tokio::join!(read(), read(), read(), read(), read())) {
            let InFlightCount::ConnectionsFailed(why) = &count else { panic!("{count:?}") };
            assert!(why.contains("did not answer"), "{why}");
        }
        // A call and the pause after it.
        assert!(start.elapsed() < Duration::from_millis(2500), "{:?}", start.elapsed());
    }
}
