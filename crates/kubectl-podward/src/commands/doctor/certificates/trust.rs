//! Checks that services trust the certificates of the services that they call.

use jiff::Timestamp;

use super::super::bindings::BRIDGE;
use super::super::finding::Finding;
use super::chain;
use super::serving::{ServingCertificate, secret_of};

/// The service that the traffic-controller calls on each node.
pub(super) const NODE_AGENT: &str = "node-agent";

/// The gRPC callers and the services that they call. A caller verifies the service by the authorities in its own
/// Secret. The lifecycle-controller also calls the traffic-controller, but gets the authorities with the registration.
const CALLS: [(&str, &str); 4] = [
    ("validating-webhook", "lifecycle-controller"),
    ("traffic-controller", "lifecycle-controller"),
    (BRIDGE, "lifecycle-controller"),
    ("traffic-controller", NODE_AGENT),
];

/// Checks each caller. Open connections survive a change of the authority, so without this check the fault shows only
/// after the next restart.
pub(super) fn judge(
    served: &[(String, ServingCertificate)],
    namespace: &str,
    now: Timestamp,
) -> Vec<Finding> {
    let found = |service: &str| match served.iter().find(|(name, _)| name == service) {
        Some((_, ServingCertificate::Found(certificate, authorities))) => Some((certificate, authorities)),
        _ => None,
    };
    let calls = CALLS.iter().filter_map(|(caller, called)| {
        let ((_, trusted), (certificate, own)) = (found(caller)?, found(called)?);
        let chain = chain::read(certificate).unwrap_or_default();
        let (leaf, intermediates) = chain.split_first()?;
        let name = format!("{called}.{namespace}.svc");
        let is_good = |by: &Vec<u8>| chain::verify(leaf, intermediates, &[by.as_slice()], &name, now).is_ok();
        // A certificate that is invalid for every caller is reported by another check.
        is_good(own).then(|| (caller, called, is_good(trusted)))
    });
    let secrets: Vec<_> = served.iter().map(|(service, _)| secret_of(service)).collect();
    let anew = format!(
        "kubectl -n {namespace} delete secret {}: new ones are issued by one authority",
        secrets.join(" ")
    );
    calls
        .map(|(caller, called, trusts)| match trusts {
            true => Finding::ok(format!("{caller} trusts the certificate of {called}")),
            false => Finding::failed(
                format!(
                    "{caller} cannot call {called}: ca.crt in its Secret {} does not contain the authority",
                    secret_of(caller)
                ),
                anew.clone(),
            ),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::finding::FindingLevel;
    use super::super::chain::tests::{Authority, at};
    use super::*;

    fn serving(service: &str, authority: &Authority, trusted: &[&[u8]]) -> (String, ServingCertificate) {
        let certificate = authority.sign(&format!("{service}.ours.svc"), 1, 90);
        (service.to_owned(), ServingCertificate::Found(certificate.into_bytes(), trusted.concat()))
    }

    #[test]
    fn callers_must_trust_the_issuer() {
        let (one, other) = (Authority::new(1, 300), Authority::new(1, 300));
        let called = serving("lifecycle-controller", &one, &[one.pem()]);
        let both = serving("traffic-controller", &other, &[other.pem(), one.pem()]);
        let lacks = serving("validating-webhook", &other, &[other.pem()]);
        let served = [lacks, called, both];
        let found = judge(&served, "ours", at(10));
        assert_eq!(
            found.iter().map(|found| found.level).collect::<Vec<_>>(),
            [FindingLevel::Failed, FindingLevel::Ok]
        );
        assert!(
            found[0].what.starts_with("validating-webhook cannot call lifecycle-controller"),
            "{found:?}"
        );
        assert!(found[0].next.as_ref().unwrap().contains("lifecycle-controller-tls"), "{found:?}");
        assert!(judge(&served, "ours", at(95)).is_empty(), "expired for everybody");
        assert!(judge(&served[1..2], "ours", at(10)).is_empty());
    }

    #[test]
    fn services_that_are_not_installed_by_default_are_checked_too() {
        let (one, other) = (Authority::new(1, 300), Authority::new(1, 300));
        let served = [
            serving("lifecycle-controller", &one, &[one.pem()]),
            serving("traffic-controller", &one, &[one.pem()]),
            serving("service-discovery-bridge", &other, &[other.pem()]),
            serving("node-agent", &other, &[other.pem()]),
        ];
        let found = judge(&served, "ours", at(10));
        let failed: Vec<_> = found.iter().filter(|found| found.level == FindingLevel::Failed).collect();
        for (found, calls) in failed.iter().zip([
            "service-discovery-bridge cannot call lifecycle-controller",
            "traffic-controller cannot call node-agent",
        ]) {
            assert!(found.what.starts_with(calls), "{found:?}");
            let next = found.next.as_ref().unwrap();
            assert!(next.contains("service-discovery-bridge-tls node-agent-tls"), "{next}");
        }
        assert_eq!((failed.len(), found.len()), (2, 3), "{found:?}");
    }
}
