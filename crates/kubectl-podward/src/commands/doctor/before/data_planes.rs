//! What sends pods traffic without kube-proxy.

use super::super::finding::Finding;
use super::facts::ClusterFacts;
use super::proxies::replaced_by_cilium;

const PAGE: &str = "read docs/operations/zero-loss.md, What bypasses kube-proxy; a hook can drain such a data plane with evidence";

/// Names, and the end of the names of their resource definitions.
const DEFINITIONS: [(&str, &str); 6] = [
    ("Istio", ".networking.istio.io"),
    ("Linkerd", ".policy.linkerd.io"),
    ("the Gateway API", "gateways.gateway.networking.k8s.io"),
    ("the AWS Load Balancer Controller", "targetgroupbindings.elbv2.k8s.aws"),
    ("Traefik", "ingressroutes.traefik.io"),
    ("Contour", "httpproxies.projectcontour.io"),
];
/// Names, and their images.
const IMAGES: [(&str, &str); 3] = [
    ("ingress-nginx", "controller"),
    ("HAProxy's Ingress controller", "haproxy-ingress"),
    ("kube-router", "kube-router"),
];

pub(super) fn judge(facts: &ClusterFacts) -> Vec<Finding> {
    let mut found: Vec<&str> = Vec::new();
    if replaced_by_cilium(facts) {
        found.push("Cilium (kube-proxy-replacement)");
    }
    let defined = |end: &str| facts.definitions.iter().any(|name| name.ends_with(end));
    found.extend(DEFINITIONS.into_iter().filter(|(_, end)| defined(end)).map(|(name, _)| name));
    let runs = |image: &str| {
        facts.program(image).is_some_and(|program| image != "controller" || program.name.contains("ingress"))
    };
    found.extend(IMAGES.into_iter().filter(|(_, image)| runs(image)).map(|(name, _)| name));
    if found.is_empty() {
        return vec![Finding::ok("no data plane that bypasses kube-proxy was found")];
    }
    let finding = |name: &str| {
        Finding::warning(
            format!(
                "{name} can send pods traffic without kube-proxy: the evidence is BOUNDED instead of PROVEN there"
            ),
            PAGE,
        )
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
            ],
            cilium: Some(vec![("kube-proxy-replacement".to_owned(), "true".to_owned())]),
            programs: vec![RunningProgram {
                name: "ingress-nginx-controller".to_owned(),
                image: "registry.k8s.io/ingress-nginx/controller:v1".to_owned(),
                ..RunningProgram::default()
            }],
            ..ClusterFacts::default()
        };
        let found: Vec<String> = judge(&facts).into_iter().map(|finding| finding.what).collect();
        assert_eq!(found.len(), 3, "{found:?}");
        for (what, name) in found.iter().zip(["Cilium", "Istio", "ingress-nginx"]) {
            assert!(what.starts_with(name), "{what}");
        }
    }
}
