//! Checks whether the traffic-controller can read the metrics of each node's kube-proxy. Without them, it waits for a known
//! upper bound instead of proof that a node has applied a change.

use anyhow::Result;
use hyper::Request;

use super::finding::{Finding, is_denied};
use super::services::OPTIONAL;
use super::target::DoctorTarget;

/// The metric with the number of nodes, by the label `read`.
const METRIC: &str = "podward_traffic_kube_proxies";
const NEXT: &str = "install the node-agent (global.nodeAgent.enabled), or set metricsBindAddress of kube-proxy to an address \
                    that the traffic-controller reaches (docs/operations/zero-loss.md)";

/// The numbers of nodes, by how their kube-proxy was last read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct NodeCounts {
    directly: u64,
    by_agent: u64,
    not: u64,
}

/// What the traffic-controller returns.
#[derive(Debug)]
enum MetricsAnswer {
    Text(String),
    /// The user may not send requests through the API server.
    Denied,
    /// The API server did not reach a replica.
    Unreachable,
}

pub(super) async fn check(target: &DoctorTarget) -> Result<Vec<Finding>> {
    Ok(vec![judge(&ask(target).await?)])
}

/// Reads the metrics of one replica. Each replica reads all kube-proxies itself.
async fn ask(target: &DoctorTarget) -> Result<MetricsAnswer> {
    let path = format!("/api/v1/namespaces/{}/services/{OPTIONAL}:admin/proxy/metrics", target.namespace);
    match target.client.request_text(Request::get(path).body(Vec::new())?).await {
        Ok(text) => Ok(MetricsAnswer::Text(text)),
        Err(error) if is_denied(Some(&error)) => Ok(MetricsAnswer::Denied),
        Err(kube::Error::Api(_)) => Ok(MetricsAnswer::Unreachable),
        Err(error) => Err(error.into()),
    }
}

fn judge(answer: &MetricsAnswer) -> Finding {
    let text = match answer {
        MetricsAnswer::Text(text) => text,
        MetricsAnswer::Denied => {
            return Finding::skipped(format!(
                "the {OPTIONAL} was not asked which kube-proxies it reads: that needs the right to use services/proxy"
            ));
        }
        MetricsAnswer::Unreachable => {
            return Finding::skipped(format!(
                "the {OPTIONAL} could not be asked which kube-proxies it reads: it is not installed, or the API server did \
                 not reach it"
            ));
        }
    };
    let counts = counts(text);
    let NodeCounts { directly, by_agent, not } = counts;
    if counts == NodeCounts::default() {
        return Finding::note(
            "no kube-proxy was read: traffic-controller.kubeProxyMetricsUrl is empty, or the traffic-controller has just \
             started",
        );
    }
    let how = format!("{directly} directly, {by_agent} by the node-agent");
    match (directly + by_agent, not) {
        (_, 0) => Finding::ok(format!("the kube-proxies of all nodes are read: {how}")),
        (read, not) => Finding::warning(
            format!(
                "the kube-proxies of {not} of {} nodes cannot be read ({how}): the evidence for changes of Services is \
                 BOUNDED instead of PROVEN",
                read + not
            ),
            NEXT,
        ),
    }
}

fn counts(text: &str) -> NodeCounts {
    let mut counts = NodeCounts::default();
    let samples = text
        .lines()
        .filter_map(|line| line.strip_prefix(METRIC)?.strip_prefix("{read=\"")?.split_once("\"} "));
    for (read, value) in samples {
        let Ok(value) = value.trim().parse() else { continue };
        match read {
            "directly" => counts.directly = value,
            "by-agent" => counts.by_agent = value,
            "not" => counts.not = value,
            _ => {}
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::super::finding::FindingLevel;
    use super::*;

    fn judge_text(text: &str) -> Finding {
        judge(&MetricsAnswer::Text(text.to_owned()))
    }

    #[test]
    fn nodes_whose_kube_proxy_cannot_be_read_are_a_warning() {
        let all = "# TYPE podward_traffic_kube_proxies gauge\npodward_traffic_kube_proxies{read=\"directly\"} 2\n\
                   podward_traffic_kube_proxies{read=\"by-agent\"} 3\npodward_traffic_kube_proxies{read=\"not\"} 0\n";
        let found = judge_text(all);
        assert!(
            found.level == FindingLevel::Ok && found.what.ends_with("2 directly, 3 by the node-agent"),
            "{found:?}"
        );
        let found = judge_text(&all.replace("\"not\"} 0", "\"not\"} 1"));
        assert!(found.level == FindingLevel::Warning && found.what.contains("1 of 6 nodes"), "{found:?}");
        assert!(found.next.is_some_and(|next| next.contains("node-agent")));
    }

    #[test]
    fn what_is_not_known_is_not_judged() {
        assert_eq!(judge_text("podward_traffic_kube_proxies{read=\"x\"} 1").level, FindingLevel::Note);
        assert_eq!(judge(&MetricsAnswer::Denied).level, FindingLevel::Skipped);
        assert_eq!(judge(&MetricsAnswer::Unreachable).level, FindingLevel::Skipped);
    }
}
