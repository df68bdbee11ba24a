//! The authority: what it holds, when it is replaced, and what it signs. Pure but for the random numbers in keys.

use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};

use super::pem::{Facts, Pair, facts_of, split};

/// Certificates are good from so long before they are made: clocks of a cluster differ.
const BACKDATED: Duration = Duration::from_secs(60);
/// What the authority is called; a number follows, so that no two have the same name.
const NAME: &str = "podward-ca";
/// Authorities that are trusted at most; a few are in use at a time.
const MOST_TRUSTED: usize = 16;

/// How long things last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lifetimes {
    /// Of a service's certificate.
    pub(crate) certificate: Duration,
    /// Of the authority.
    pub(crate) authority: Duration,
}

impl Lifetimes {
    /// For how long a new authority is only trusted before it signs: until then everybody is to know it.
    fn notice(self) -> Duration {
        (self.authority / 12).min(Duration::from_secs(86_400))
    }
}

/// What is in the authority's Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Authority {
    /// Who signs.
    pub(crate) current: Pair,
    /// Who will, once everybody trusts it.
    pub(crate) next: Option<Pair>,
    /// Certificates of all that may have signed something still in use, `current` and `next` among them: PEM, one after the other.
    pub(crate) trusted: String,
}

/// What could not be made or read, in words.
pub(crate) type Problem = String;

impl Authority {
    /// A new one, which goes on trusting those of `trusted` that are good yet.
    pub(crate) fn new(lifetimes: Lifetimes, now: u64, trusted: &str) -> Result<Authority, Problem> {
        let current = make_authority(lifetimes, now)?;
        let trusted = trusted_still(&current.certificate, trusted, now);
        Ok(Authority { current, next: None, trusted })
    }

    /// What it is to become at `now` (seconds since 1970), while services trust `others` (PEM); `None` while it may stay as it is.
    ///
    /// Services may have certificates of somebody else, from whom this one takes over: he is trusted until they have ended.
    pub(crate) fn replaced(
        &self,
        lifetimes: Lifetimes,
        others: &str,
        now: u64,
    ) -> Result<Option<Authority>, Problem> {
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
                new.trusted = trusted_still(&next.certificate, &self.trusted, now);
                new.next = Some(next);
            }
            None => {}
        }
        let good = trusted_still(&new.trusted, others, now);
        if !good.is_empty() {
            new.trusted = good;
        }
        Ok((new != *self).then_some(new))
    }

    /// Why nothing can be signed with it at `now`; `None` if it can.
    pub(crate) fn why_useless(&self, now: u64) -> Option<Problem> {
        match (facts_of(&self.current.certificate), KeyPair::from_pem(&self.current.key)) {
            (Err(problem), _) => Some(problem),
            (Ok(facts), _) if now >= facts.not_after => Some("it had expired".to_owned()),
            (_, Err(error)) => Some(format!("its key can't be used, perhaps for not being PKCS#8: {error}")),
            (Ok(_), Ok(_)) => None,
        }
    }

    /// When to look at [`replaced`](Self::replaced) again, in seconds since 1970.
    pub(crate) fn look_again(&self, lifetimes: Lifetimes) -> Result<u64, Problem> {
        match &self.next {
            Some(next) => Ok(facts_of(&next.certificate)?.begins_after(BACKDATED + lifetimes.notice())),
            None => Ok(facts_of(&self.current.certificate)?.renewal()),
        }
    }

    /// A certificate for a server with these `names`.
    pub(crate) fn sign(&self, names: &[String], lifetimes: Lifetimes, now: u64) -> Result<Pair, Problem> {
        let problem = |error: rcgen::Error| format!("could not make a certificate for {names:?}: {error}");
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
        Ok(Pair { certificate: certificate.pem(), key: key.serialize_pem() })
    }

    /// Why the pair `leaf` is not, or not for much longer, one for these `names`; `None` if it may stay.
    pub(crate) fn why_renew(
        &self,
        leaf: &Pair,
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
            Some(format!("its key can't be used: {error}"))
        } else if facts.names != wanted {
            Some("it is for other names".to_owned())
        } else if now >= facts.renewal() {
            Some("two thirds of its time have passed".to_owned())
        } else if facts.not_after > now.saturating_add((lifetimes.certificate + BACKDATED).as_secs()) {
            Some("it is good for longer than is asked for".to_owned())
        } else {
            None
        }
    }
}

fn make_authority(lifetimes: Lifetimes, now: u64) -> Result<Pair, Problem> {
    let problem = |error: rcgen::Error| format!("could not make an authority: {error}");
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, format!("{NAME}-{:016x}", fastrand::u64(..)));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    between(&mut params, now, now.saturating_add(lifetimes.authority.as_secs()))?;
    let key = KeyPair::generate().map_err(problem)?;
    let certificate = params.self_signed(&key).map_err(problem)?;
    Ok(Pair { certificate: certificate.pem(), key: key.serialize_pem() })
}

fn between(params: &mut CertificateParams, now: u64, end: u64) -> Result<(), Problem> {
    let date = |seconds: u64| {
        let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
        time::OffsetDateTime::from_unix_timestamp(seconds)
            .map_err(|error| format!("a lifetime goes past what certificates can say: {error}"))
    };
    params.not_before = date(now.saturating_sub(BACKDATED.as_secs()))?;
    params.not_after = date(end)?;
    Ok(())
}

/// The certificates of `first` and then `second` that are good yet, each once.
fn trusted_still(first: &str, second: &str, now: u64) -> String {
    let is_good = |pem: &String| facts_of(pem).is_ok_and(|facts: Facts| facts.not_after > now);
    let mut all: Vec<String> = Vec::new();
    for pem in split(first).into_iter().chain(split(second)).filter(is_good) {
        if all.len() < MOST_TRUSTED && !all.contains(&pem) {
            all.push(pem);
        }
    }
    all.concat()
}
