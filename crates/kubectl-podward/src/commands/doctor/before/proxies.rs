//! kube-proxy: its mode, and whether its metrics can be read.

use super::super::finding::Finding;
use super::facts::ClusterFacts;

const AGENT: &str = "install Podward with global.nodeAgent.enabled=true, or set metricsBindAddress: 0.0.0.0:10249 in the \
                     ConfigMap kube-system/kube-proxy";

pub(super) fn judge(facts: &ClusterFacts) -> Vec<Finding> {
    if replaced_by_cilium(facts) {
        return vec![Finding::note("Cilium takes the place of kube-proxy: see data planes")];
    }
    let Some(config) = &facts.kube_proxy else {
        return vec![Finding::note(
            "there is no ConfigMap kube-system/kube-proxy, so the mode of kube-proxy is not known; after the installation, \
             kubectl podward doctor says whether its metrics can be read",
        )];
    };
    let value = |key: &str| {
        let line = config.lines().find_map(|line| line.trim().strip_prefix(key)?.strip_prefix(':'));
        line.map(|value| value.trim().trim_matches('"')).unwrap_or_default()
    };
    let mode = match value("mode") {
        "" => "iptables",
        mode => mode,
    };
    let mut findings = vec![match mode {
        "iptables" => Finding::ok("kube-proxy runs in the mode iptables"),
        "nftables" => Finding::note(
            "kube-proxy runs in the mode nftables, which refuses about one new connection in 400,000 when it rewrites a \
             Service, with and without Podward (docs/operations/zero-loss.md)",
        ),
        other => Finding::warning(
            format!("kube-proxy runs in the mode {other}, in which Podward is not tested"),
            "use iptables",
        ),
    }];
    let address = value("metricsBindAddress");
    let is_local = address.is_empty()
        || ["127.0.0.1", "localhost", "[::1]"].iter().any(|host| address.starts_with(host));
    findings.push(match is_local {
        true => Finding::warning(
            "the metrics of kube-proxy can be read on its node only: the evidence for changes of Services is BOUNDED instead \
             of PROVEN, and each change waits for 5 s",
            AGENT,
        ),
        false => Finding::ok(format!("the metrics of kube-proxy can be read at {address}")),
    });
    findings
}

/// Returns whether Cilium forwards the traffic of Services.
pub(super) fn replaced_by_cilium(facts: &ClusterFacts) -> bool {
    let replaces = |(key, value): &(String, String)| {
        key == "kube-proxy-replacement" && matches!(value.as_str(), "true" | "strict")
    };
    facts.cilium.as_ref().is_some_and(|settings| settings.iter().any(replaces))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::finding::FindingLevel;

    fn of(config: &str) -> Vec<FindingLevel> {
        let facts = ClusterFacts { kube_proxy: Some(config.to_owned()), ..ClusterFacts::default() };
        judge(&facts).into_iter().map(|finding| finding.level).collect()
    }

    #[test]
    fn the_mode_and_the_address_of_the_metrics_are_read() {
        assert_eq!(of("mode: \"\"\nmetricsBindAddress: \"\"\n"), [FindingLevel::Ok, FindingLevel::Warning]);
        assert_eq!(
            of("mode: nftables\nmetricsBindAddress: 0.0.0.0:10249\n"),
            [FindingLevel::Note, FindingLevel::Ok]
        );
        assert_eq!(
            of("mode: ipvs\nmetricsBindAddress: 127.0.0.1:10249\n"),
            [FindingLevel::Warning, FindingLevel::Warning]
        );
        assert_eq!(judge(&ClusterFacts::default())[0].level, FindingLevel::Note);
    }
}
