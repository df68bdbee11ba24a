//! The authority over time.

use std::time::Duration;

use super::authority::Authority;
use super::bundles::Bundles;
use super::lifetimes::Lifetimes;
use super::pem::{facts_of, split};
use serde_json::json;

const LIFETIMES: Lifetimes =
    Lifetimes { certificate: Duration::from_secs(120), authority: Duration::from_secs(1200) };
const START: u64 = 1_700_000_000;

fn names() -> Vec<String> {
    vec!["a.ns.svc".to_owned(), "a".to_owned()]
}

/// Reconciles each second for ten lifetimes of the authority. The last list of trusted authorities always contains the
/// signer of the present certificate.
#[test]
fn every_authority_is_trusted_before_it_signs() {
    let mut authority = Authority::new(LIFETIMES, START, "").unwrap();
    let mut leaf = authority.sign(&names(), LIFETIMES, START).unwrap();
    let mut lists = vec![authority.trusted.clone()];
    let (mut signers, mut leaves) = (1, 1);
    // A signature takes about a millisecond. Seconds in which nothing is due are skipped.
    let mut now = START;
    while now < START + 10 * LIFETIMES.authority.as_secs() {
        if let Some(new) = authority.replaced(LIFETIMES, "", now).unwrap() {
            signers += u32::from(new.current != authority.current);
            if new.trusted != authority.trusted {
                lists.push(new.trusted.clone());
            }
            assert!(new.trusted.contains(&new.current.certificate));
            authority = new;
            assert_eq!(authority.replaced(LIFETIMES, "", now).unwrap(), None, "no second change");
        }
        if authority.renewal_reason(&leaf, &names(), LIFETIMES, now).is_some() {
            leaf = authority.sign(&names(), LIFETIMES, now).unwrap();
            leaves += 1;
            assert_eq!(authority.renewal_reason(&leaf, &names(), LIFETIMES, now), None);
        }
        let facts = facts_of(&leaf.certificate).unwrap();
        assert!(facts.not_after > now, "an expired certificate is served");
        let is_known = |list: &String| {
            split(list).iter().any(|one| {
                let one = facts_of(one).unwrap();
                one.subject == facts.issuer && one.not_after > now
            })
        };
        assert!(is_known(lists.last().unwrap()), "the signer is not trusted");
        assert!(split(lists.last().unwrap()).len() <= 3, "expired authorities were not removed");
        now = (now + 1).max(authority.next_change(LIFETIMES).unwrap().min(facts.renewal()));
    }
    assert!(signers >= 10 && leaves >= 100, "{signers} {leaves}");
}

#[test]
fn a_new_authority_is_trusted_for_the_notice_before_it_signs() {
    let first = Authority::new(LIFETIMES, START, "").unwrap();
    let due = facts_of(&first.current.certificate).unwrap().renewal();
    assert_eq!(first.replaced(LIFETIMES, "", due - 1).unwrap(), None);
    let second = first.replaced(LIFETIMES, "", due).unwrap().unwrap();
    assert_eq!(second.current, first.current);
    let next = second.next.clone().unwrap();
    assert!(second.trusted.contains(&next.certificate) && second.trusted.contains(&first.trusted));
    let signs = due + LIFETIMES.authority.as_secs() / 12;
    assert_eq!(second.replaced(LIFETIMES, "", signs - 1).unwrap(), None);
    let third = second.replaced(LIFETIMES, "", signs).unwrap().unwrap();
    assert_eq!((third.current, third.next), (next, None));
    assert_eq!(third.trusted, second.trusted);
}

/// As after cert-manager, whose certificates services use until new ones are signed.
#[test]
fn other_trusted_authorities_stay_trusted_until_they_expire() {
    let authority = Authority::new(LIFETIMES, START, "").unwrap();
    let other = Authority::new(LIFETIMES, START, "").unwrap();
    let both = authority.replaced(LIFETIMES, &other.trusted, START).unwrap().unwrap();
    assert_eq!(both.trusted, format!("{}{}", authority.trusted, other.trusted));
    assert_eq!(
        (&both.current, &both.next),
        (&authority.current, &None),
        "the same authority continues to sign"
    );
    assert_eq!(both.replaced(LIFETIMES, &both.trusted.repeat(2), START).unwrap(), None, "no second change");
    let many: String = (0..40).map(|_| Authority::new(LIFETIMES, START, "").unwrap().trusted).collect();
    let most = authority.replaced(LIFETIMES, &many, START).unwrap().unwrap();
    assert!(split(&most.trusted).len() < 40 && most.trusted.starts_with(&authority.trusted));
    let end = facts_of(&other.current.certificate).unwrap().not_after;
    let later = Authority::new(LIFETIMES, end - 10, &other.trusted).unwrap();
    assert_eq!(split(&later.trusted).len(), 2);
    let alone = later.replaced(LIFETIMES, &later.trusted, end).unwrap().unwrap();
    assert_eq!(alone.trusted, later.current.certificate);
}

#[test]
fn an_authority_that_cannot_sign_is_unusable() {
    let authority = Authority::new(LIFETIMES, START, "").unwrap();
    let end = facts_of(&authority.current.certificate).unwrap().not_after;
    assert_eq!(authority.unusable_reason(end - 1), None);
    assert_eq!(authority.unusable_reason(end).as_deref(), Some("it has expired"));
    for (certificate, key, words) in [
        ("", authority.current.key.as_str(), "no certificate"),
        (authority.current.certificate.as_str(), "rubbish", "key cannot be used"),
    ] {
        let mut broken = authority.clone();
        broken.current =
            super::pem::CertificatePair { certificate: certificate.to_owned(), key: key.to_owned() };
        let why = broken.unusable_reason(START).unwrap();
        assert!(why.contains(words), "{why}");
    }
}

#[test]
fn certificates_that_do_not_fit_are_renewed() {
    let authority = Authority::new(LIFETIMES, START, "").unwrap();
    let leaf = authority.sign(&names(), LIFETIMES, START).unwrap();
    assert_eq!(authority.renewal_reason(&leaf, &names(), LIFETIMES, START + 59), None);
    assert!(authority.renewal_reason(&leaf, &names(), LIFETIMES, START + 61).unwrap().contains("two thirds"));
    assert!(
        authority.renewal_reason(&leaf, &["b".to_owned()], LIFETIMES, START).unwrap().contains("other names")
    );
    let shorter = Lifetimes { certificate: Duration::from_secs(50), ..LIFETIMES };
    let why = authority.renewal_reason(&leaf, &names(), shorter, START);
    assert!(why.unwrap().contains("longer than configured"));
    let other = Authority::new(LIFETIMES, START, &authority.trusted).unwrap();
    assert!(other.renewal_reason(&leaf, &names(), LIFETIMES, START).unwrap().contains("another authority"));
    assert!(other.trusted.contains(&authority.current.certificate));
    for (certificate, key, words) in [
        ("", leaf.key.as_str(), "no certificate"),
        (leaf.certificate.as_str(), "rubbish", "key cannot be used"),
    ] {
        let broken = super::pem::CertificatePair { certificate: certificate.to_owned(), key: key.to_owned() };
        let why = authority.renewal_reason(&broken, &names(), LIFETIMES, START).unwrap();
        assert!(why.contains(words), "{why}");
    }
}

#[test]
fn only_entries_that_trust_others_are_patched() {
    let bundles = |first: Option<&str>| {
        let bundle = |text: &str| k8s_openapi::ByteString(text.as_bytes().to_vec());
        let webhook = |name, bundle: Option<k8s_openapi::ByteString>| {
            let config = json!({ "caBundle": bundle });
            json!({"name": name, "clientConfig": config, "sideEffects": "None", "admissionReviewVersions": []})
        };
        let found = serde_json::from_value::<
            k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration,
        >(json!({
            "metadata": {"name": "podward-validating", "resourceVersion": "7"},
            "webhooks": [
                webhook("a", first.map(bundle)),
                webhook("b", Some(bundle("new"))),
            ],
        }));
        Bundles::from(&found.unwrap())
    };
    assert_eq!(bundles(Some("new")).patch("new"), None);
    assert_eq!(bundles(Some("old")).text(), "old\nnew\n");
    for other in [None, Some("old")] {
        let expected = json!({
            "metadata": {"resourceVersion": "7"},
            "webhooks": [{"name": "a", "clientConfig": {"caBundle": "bmV3"}}],
        });
        assert_eq!(bundles(other).patch("new"), Some(expected));
    }
}
