//! Checks the validity period of a certificate.

use jiff::Timestamp;
use rustls_pki_types::CertificateDer;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::super::finding::Finding;

const RENEW: &str = "it should have been renewed; the log of the lifecycle-controller, or of cert-manager, says why \
                     it was not";

/// Checks the validity period. Certificates are renewed when a third of the period remains, so less is a warning.
pub(super) fn judge_validity(der: &CertificateDer<'_>, what: &str, now: Timestamp) -> Finding {
    let certificate = match X509Certificate::from_der(der) {
        Ok((_, certificate)) => certificate,
        Err(error) => return Finding::failed(format!("{what} cannot be parsed: {error}"), RENEW),
    };
    let (begin, end) =
        (certificate.validity().not_before.timestamp(), certificate.validity().not_after.timestamp());
    let now = now.as_second();
    let date = date(end);
    let left = end.saturating_sub(now);
    if now >= end {
        Finding::failed(format!("{what} has expired ({date})"), RENEW)
    } else if now < begin {
        Finding::failed(
            format!("{what} is not valid yet"),
            "a clock is wrong: that of this machine, or that of the issuer",
        )
    } else if left < end.saturating_sub(begin) / 3 {
        Finding::warning(format!("{what} expires in {} ({date})", time(left)), RENEW)
    } else {
        Finding::ok(format!("{what} is valid for {} ({date})", time(left)))
    }
}

fn date(seconds: i64) -> String {
    Timestamp::from_second(seconds)
        .map_or_else(|_| "no representable date".to_owned(), |time| time.to_string())
}

fn time(seconds: i64) -> String {
    match seconds {
        172_800.. => format!("{} days", seconds / 86_400),
        7_200.. => format!("{} hours", seconds / 3_600),
        120.. => format!("{} minutes", seconds / 60),
        _ => format!("{seconds} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::finding::FindingLevel;
    use super::super::chain::tests::{Authority, at};
    use super::*;

    #[test]
    fn the_last_third_of_a_life_is_late() {
        let authority = Authority::new(1, 91);
        let der = authority.der();
        for (day, level) in [
            (0, FindingLevel::Failed),
            (2, FindingLevel::Ok),
            (60, FindingLevel::Ok),
            (62, FindingLevel::Warning),
            (91, FindingLevel::Failed),
        ] {
            assert_eq!(judge_validity(&der, "it", at(day)).level, level, "day {day}");
        }
        assert!(judge_validity(&der, "it", at(61)).what.starts_with("it expires in 29 days"));
        assert_eq!(judge_validity(&b"rubbish"[..].into(), "it", at(1)).level, FindingLevel::Failed);
    }

    #[test]
    fn times_are_told_in_fitting_units() {
        assert_eq!(
            [time(864_000), time(7_300), time(600), time(5)],
            ["10 days", "2 hours", "10 minutes", "5 s"]
        );
    }
}
