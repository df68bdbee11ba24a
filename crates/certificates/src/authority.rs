//! The authority: its certificates, its renewal, and the certificates that it signs. Pure, except for random keys.

use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};

use crate::lifetimes::Lifetimes;
use crate::pem::{CertificateFacts, CertificatePair, facts_of, split};

/// Certificates are valid from this long before their creation, because the clocks in a cluster differ.
const BACKDATED: Duration = Duration::from_secs(60);
/// The prefix of the name of an authority. A random number follows, so that names are unique.
const NAME: &str = "podward-ca";
/// The maximum number of trusted authorities. A few are in use at a time.
const MAX_TRUSTED: usize = 16;

/// The content of the Secret of the authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Authority {
    /// The authority that signs.
    pub current: CertificatePair,
    /// The authority that signs next, once all callers trust it.
    pub next: Option<CertificatePair>,
    /// The certificates of all authorities whose certificates may be in use, including `current` and `next`:
    /// concatenated PEM.
    pub trusted: String,
}

/// A description of a certificate problem.
pub(crate) type CertificateProblem = String;

impl Authority {
    /// Returns a new authority that also trusts the certificates in `trusted` that are still valid.
    pub(crate) fn new(
        lifetimes: Lifetimes,
        now: u64,
        trusted: &str,
    ) -> Result<Authority, CertificateProblem> {
        let current = make_authority(lifetimes, now)?;
        let trusted = still_valid(&current.certificate, trusted, now);
        Ok(Authority { current, next: None, trusted })
    }

    /// Returns the authority as it must be at `now` (seconds since 1970) if services trust `others` (PEM). Returns
    /// `None` if nothing changes.
    ///
    /// Services may have certificates of other authorities that this one replaces. Those are trusted until they expire.
    pub(crate) fn replaced(
        &self,
        lifetimes: Lifetimes,
        others: &str,
        now: u64,
    ) -> Result<Option<Authority>, CertificateProblem> {
        let mut new = self.clone();
        match &self.next {
            Some(next)
                if now >= facts_of(&next.certificate)?.begins_after(BACKDATED + lifetimes.notice()) =>
            {
                new.current = next.clone();
                new.next = None;
            }
            Some(_) => {}
            None if now >= facts_of(&self.current.certificate)?.renewal() => {
                let next = make_authority(lifetimes, now)?;
                new.trusted = still_valid(&next.certificate, &self.trusted, now);
                new.next = Some(next);
            }
            None => {}
        }
        let good = still_valid(&new.trusted, others, now);
        if !good.is_empty() {
            new.trusted = good;
        }
        Ok((new != *self).then_some(new))
    }

    /// Returns the reason why the authority cannot sign at `now`. `None` if it can.
    pub(crate) fn unusable_reason(&self, now: u64) -> Option<CertificateProblem> {
        match (facts_of(&self.current.certificate), KeyPair::from_pem(&self.current.key)) {
            (Err(problem), _) => Some(problem),
            (Ok(facts), _) if now >= facts.not_after => Some("it has expired".to_owned()),
            (_, Err(error)) => Some(format!("its key cannot be used; it may not be PKCS#8: {error}")),
            (Ok(_), Ok(_)) => None,
        }
    }

    /// Returns the time at which [`replaced`](Self::replaced) next returns a change, in seconds since 1970.
    pub(crate) fn next_change(&self, lifetimes: Lifetimes) -> Result<u64, CertificateProblem> {
        match &self.next {
            Some(next) => Ok(facts_of(&next.certificate)?.begins_after(BACKDATED + lifetimes.notice())),
            None => Ok(facts_of(&self.current.certificate)?.renewal()),
        }
    }

    /// Returns a certificate for a server with these `names`.
    pub(crate) fn sign(
        &self,
        names: &[String],
        lifetimes: Lifetimes,
        now: u64,
    ) -> Result<CertificatePair, CertificateProblem> {
        let problem = |error: rcgen::Error| format!("could not create a certificate for {names:?}: {error}");
        let end = now
            .saturating_add(lifetimes.certificate.as_secs())
            .min(facts_of(&self.current.certificate)?.not_after);
        let mut params = CertificateParams::new(names).map_err(problem)?;
        params.distinguished_name = DistinguishedName::new();
        let first = names.first().map(String::as_str).unwrap_or_default();
        params.distinguished_name.push(DnType::CommonName, first);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        between(&mut params, now, end)?;
        let authority_key = KeyPair::from_pem(&self.current.key).map_err(problem)?;
        let issuer = Issuer::from_ca_cert_pem(&self.current.certificate, authority_key).map_err(problem)?;
        let key = KeyPair::generate().map_err(problem)?;
        let certificate = params.signed_by(&key, &issuer).map_err(problem)?;
        Ok(CertificatePair { certificate: certificate.pem(), key: key.serialize_pem() })
    }

    /// Returns the reason why the pair `leaf` must be renewed for these `names`. `None` if it can stay.
    pub(crate) fn renewal_reason(
        &self,
        leaf: &CertificatePair,
        names: &[String],
        lifetimes: Lifetimes,
        now: u64,
    ) -> Option<String> {
        let facts = match facts_of(&leaf.certificate) {
            Ok(facts) => facts,
            Err(problem) => return Some(problem),
        };
        let signer = match facts_of(&self.current.certificate) {
            Ok(signer) => signer,
            Err(problem) => return Some(problem),
        };
        let mut wanted = names.to_vec();
        wanted.sort();
        if facts.issuer != signer.subject {
            Some("it was signed by another authority".to_owned())
        } else if let Err(error) = KeyPair::from_pem(&leaf.key) {
            Some(format!("its key cannot be used: {error}"))
        } else if facts.names != wanted {
            Some("it is for other names".to_owned())
        } else if now >= facts.renewal() {
            Some("two thirds of its lifetime have passed".to_owned())
        } else if facts.not_after > now.saturating_add((lifetimes.certificate + BACKDATED).as_secs()) {
            Some("its lifetime is longer than configured".to_owned())
        } else {
            None
        }
    }
}

fn make_authority(lifetimes: Lifetimes, now: u64) -> Result<CertificatePair, CertificateProblem> {
    let problem = |error: rcgen::Error| format!("could not create an authority: {error}");
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, format!("{NAME}-{:016x}", fastrand::u64(..)));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    between(&mut params, now, now.saturating_add(lifetimes.authority.as_secs()))?;
    let key = KeyPair::generate().map_err(problem)?;
    let certificate = params.self_signed(&key).map_err(problem)?;
    Ok(CertificatePair { certificate: certificate.pem(), key: key.serialize_pem() })
}

fn between(params: &mut CertificateParams, now: u64, end: u64) -> Result<(), CertificateProblem> {
    let date = |seconds: u64| {
        let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
        time::OffsetDateTime::from_unix_timestamp(seconds)
            .map_err(|error| format!("the lifetime ends after the latest possible time: {error}"))
    };
    params.not_before = date(now.saturating_sub(BACKDATED.as_secs()))?;
    params.not_after = date(end)?;
    Ok(())
}

/// Returns the certificates of `first` and then `second` that have not expired, each once.
fn still_valid(first: &str, second: &str, now: u64) -> String {
    let is_good = |pem: &String| facts_of(pem).is_ok_and(|facts: CertificateFacts| facts.not_after > now);
    let mut all: Vec<String> = Vec::new();
    for pem in split(first).into_iter().chain(split(second)).filter(is_good) {
        if all.len() < MAX_TRUSTED && !all.contains(&pem) {
            all.push(pem);
        }
    }
    all.concat()
}
