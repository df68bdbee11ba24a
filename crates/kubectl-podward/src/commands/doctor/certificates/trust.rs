//! Whether services that call each other know the authority of who answers.

use jiff::Timestamp;

use super::super::finding::Finding;
use super::{Serving, chain, secret_of};

/// Who calls whom over gRPC, and checks him by the authorities in its own Secret. (The traffic-controller tells its authorities to
/// the lifecycle-controller, which calls it.)
const CALLS: [(&str, &str); 2] =
    [("validating-webhook", "lifecycle-controller"), ("traffic-controller", "lifecycle-controller")];

/// Connections that stand go on after an authority has changed, so that such a fault shows late: with the next restart.
pub(super) fn judge(served: &[(String, Serving)], namespace: &str, now: Timestamp) -> Vec<Finding> {
    let found = |service: &str| match served.iter().find(|(name, _)| name == service) {
        Some((_, Serving::Found(certificate, authorities))) => Some((certificate, authorities)),
        _ => None,
    };
    let calls = CALLS.iter().filter_map(|(caller, called)| {
        let ((_, trusted), (certificate, own)) = (found(caller)?, found(called)?);
        let chain = chain::read(certificate).unwrap_or_default();
        let (leaf, intermediates) = chain.split_first()?;
        let name = format!("{called}.{namespace}.svc");
        let is_good = |by: &Vec<u8>| chain::verify(leaf, intermediates, &[by.as_slice()], &name, now).is_ok();
        // What is wrong with it for everybody is told elsewhere.
        is_good(own).then(|| (caller, called, is_good(trusted)))
    });
    let secrets: Vec<_> = served.iter().map(|(service, _)| secret_of(service)).collect();
    let anew = format!(
        "kubectl -n {namespace} delete secret {}: all are made anew, and signed by one authority",
        secrets.join(" ")
    );
    calls
        .map(|(caller, called, trusts)| match trusts {
            true => Finding::ok(format!("{caller} trusts the certificate of {called}")),
            false => Finding::failed(
                format!(
                    "{caller} can't call {called}: ca.crt in its Secret {} lacks the authority",
                    secret_of(caller)
                ),
                anew.clone(),
            ),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::finding::Level;
    use super::super::chain::tests::{Authority, at};
    use super::*;

    #[test]
    fn callers_have_to_know_who_signed() {
        let (one, other) = (Authority::new(1, 300), Authority::new(1, 300));
        let serving = |service: &str, authority: &Authority, trusted: &[&[u8]]| {
            let certificate = authority.sign(&format!("{service}.ours.svc"), 1, 90);
            (service.to_owned(), Serving::Found(certificate.into_bytes(), trusted.concat()))
        };
        let called = serving("lifecycle-controller", &one, &[one.pem()]);
        let both = serving("traffic-controller", &other, &[other.pem(), one.pem()]);
        let lacks = serving("validating-webhook", &other, &[other.pem()]);
        let served = [lacks, called, both];
        let found = judge(&served, "ours", at(10));
        assert_eq!(found.iter().map(|found| found.level).collect::<Vec<_>>(), [Level::Failed, Level::Ok]);
        assert!(found[0].what.starts_with("validating-webhook can't call lifecycle-controller"), "{found:?}");
        assert!(found[0].next.as_ref().unwrap().contains("lifecycle-controller-tls"), "{found:?}");
        assert!(judge(&served, "ours", at(95)).is_empty(), "expired for everybody");
        assert!(judge(&served[1..2], "ours", at(10)).is_empty());
    }
}
