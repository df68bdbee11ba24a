//! What sends pods traffic without kube-proxy.

use super::super::finding::Finding;
use super::facts::ClusterFacts;
use super::proxies::replaced_by_cilium;

const PAGE: &str = "read docs/operations/zero-loss.md, What bypasses kube-proxy; a hook can drain such a data plane with evidence";
const UNSEEN: &str = "if it serves opted-in pods, and kube-proxy runs as well, set traffic-controller.kubeProxyMetricsUrl=\"\", so that \
                      the evidence is BOUNDED; read docs/operations/zero-loss.md, What bypasses kube-proxy";

const KEEP: &str = "also with Podward, keep a preStop hook that lasts until the load balancer or mesh has removed the \
                    pod (AWS: the deregistration delay of the target group), and write a hook for updates of running \
                    pods; read docs/operations/zero-loss.md, Who ignores the readiness gate";

/// Whether the traffic-controller sees to which Services a data plane sends traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sight {
    Seen,
    /// Seen, but it sends traffic to pods until they terminate.
    IgnoresGate,
    Unseen,
}
use Sight::{IgnoresGate, Seen, Unseen};

/// Names, and the end of the names of their resource definitions.
const DEFINITIONS: [(&str, &str, Sight); 8] = [
    ("Istio", ".networking.istio.io", Seen),
    ("Linkerd", ".policy.linkerd.io", Seen),
    ("the Gateway API", "gateways.gateway.networking.k8s.io", Seen),
    ("the AWS Load Balancer Controller (IP targets)", "targetgroupbindings.elbv2.k8s.aws", IgnoresGate),
    ("GKE (network endpoint groups)", "servicenetworkendpointgroups.networking.gke.io", IgnoresGate),
    ("Kuma", "meshes.kuma.io", IgnoresGate),
    ("Traefik (IngressRoute)", "ingressroutes.traefik.io", Unseen),
    ("Contour (HTTPProxy)", "httpproxies.projectcontour.io", Unseen),
];
/// Names, and their images.
const IMAGES: [(&str, &str, Sight); 3] = [
    ("ingress-nginx", "controller", Seen),
    ("HAProxy's Ingress controller", "haproxy-ingress", Seen),
    ("kube-router", "kube-router", Unseen),
];

pub(super) fn judge(facts: &ClusterFacts) -> Vec<Finding> {
    let mut found: Vec<(&str, Sight)> = Vec::new();
    if replaced_by_cilium(facts) {
        found.push(("Cilium (kube-proxy-replacement)", Unseen));
    }
    let defined = |end: &str| facts.definitions.iter().any(|name| name.ends_with(end));
    found.extend(
        DEFINITIONS.into_iter().filter(|(_, end, _)| defined(end)).map(|(name, _, sight)| (name, sight)),
    );
    let runs = |image: &str| {
        facts.program(image).is_some_and(|program| image != "controller" || program.name.contains("ingress"))
    };
    found
        .extend(IMAGES.into_iter().filter(|(_, image, _)| runs(image)).map(|(name, _, sight)| (name, sight)));
    if found.is_empty() {
        return vec![Finding::ok("no data plane that bypasses kube-proxy was found")];
    }
    let finding = |(name, sight)| match sight {
        Seen => Finding::warning(
            format!(
                "{name} can send pods traffic without kube-proxy: the evidence is BOUNDED instead of PROVEN for the Services \
                 that its objects or labels name"
            ),
            PAGE,
        ),
        IgnoresGate => Finding::warning(
            format!(
                "{name} can send pods traffic until they terminate, whatever their readiness gate says: the evidence \
                 is ASSUMED for the Services that its objects, annotations or labels name"
            ),
            KEEP,
        ),
        Unseen => Finding::warning(
            format!(
                "{name} can send pods traffic without kube-proxy, and the traffic-controller does not see to which Services: \
                 the evidence is PROVEN when kube-proxy, if it runs as well, has applied a change"
            ),
            UNSEEN,
        ),
    };
    found.into_iter().map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::super::facts::RunningProgram;
    use super::*;

    #[test]
    fn data_planes_are_named() {
        assert_eq!(judge(&ClusterFacts::default()).len(), 1);
        let facts = ClusterFacts {
            definitions: vec![
                "virtualservices.networking.istio.io".to_owned(),
                "gateways.networking.istio.io".to_owned(),
                "httpproxies.projectcontour.io".to_owned(),
            ],
            cilium: Some(vec![("kube-proxy-replacement".to_owned(), "true".to_owned())]),
            programs: vec![RunningProgram {
                name: "ingress-nginx-controller".to_owned(),
                image: "registry.k8s.io/ingress-nginx/controller:v1".to_owned(),
                ..RunningProgram::default()
            }],
            ..ClusterFacts::default()
        };
        let found = judge(&facts);
        let names = [("Cilium", false), ("Istio", true), ("Contour", false), ("ingress-nginx", true)];
        assert_eq!(found.len(), names.len(), "{found:?}");
        for (finding, (name, is_seen)) in found.iter().zip(names) {
            assert!(finding.what.starts_with(name), "{finding:?}");
            let next = finding.next.as_deref().unwrap_or_default();
            assert_eq!(finding.what.contains("BOUNDED instead of PROVEN"), is_seen, "{finding:?}");
            assert_eq!(next.contains("kubeProxyMetricsUrl"), !is_seen, "{finding:?}");
        }
    }

    #[test]
    fn data_planes_that_ignore_the_readiness_gate_need_a_pre_stop_hook() {
        for definition in [
            "targetgroupbindings.elbv2.k8s.aws",
            "servicenetworkendpointgroups.networking.gke.io",
            "meshes.kuma.io",
        ] {
            let facts = ClusterFacts { definitions: vec![definition.to_owned()], ..ClusterFacts::default() };
            let [finding] = &judge(&facts)[..] else { panic!("{definition}") };
            assert!(finding.what.contains("the evidence is ASSUMED"), "{finding:?}");
            assert!(finding.next.as_deref().unwrap_or_default().contains("preStop"), "{finding:?}");
        }
    }
}
