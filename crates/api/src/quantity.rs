//! Quantities of resources: `100m`, `1.5Gi`, `2e3`.

/// Returns true if both texts mean the same quantity.
#[must_use]
pub fn is_equal(one: &str, other: &str) -> bool {
    match (nanos(one), nanos(other)) {
        (Some(one), Some(other)) => one == other,
        _ => one == other,
    }
}

/// Returns the quantity in billionths. `None` if the text is no quantity, or too large.
#[must_use]
pub fn nanos(text: &str) -> Option<i128> {
    let text = text.trim();
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = rest.find(|it: char| !it.is_ascii_digit() && it != '.').unwrap_or(rest.len());
    let (number, suffix) = rest.split_at_checked(end)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let (multiple, exponent) = scale(suffix)?;
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let exponent = exponent.checked_add(9)?.checked_sub(i32::try_from(fraction.len()).ok()?)?;
    let power = 10_i128.checked_pow(exponent.unsigned_abs())?;
    let value = digits.checked_mul(multiple)?;
    let value =
        if exponent < 0 { value.checked_add(power - 1)? / power } else { value.checked_mul(power)? };
    value.checked_mul(sign)
}

/// Returns the factor of the suffix, and its power of ten.
fn scale(suffix: &str) -> Option<(i128, i32)> {
    let binary = |power| 1024_i128.checked_pow(power).map(|it| (it, 0));
    match suffix {
        "" => Some((1, 0)),
        "n" => Some((1, -9)),
        "u" => Some((1, -6)),
        "m" => Some((1, -3)),
        "k" => Some((1, 3)),
        "M" => Some((1, 6)),
        "G" => Some((1, 9)),
        "T" => Some((1, 12)),
        "P" => Some((1, 15)),
        "E" => Some((1, 18)),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        _ => suffix.strip_prefix(['e', 'E'])?.parse().ok().map(|power| (1, power)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{is_equal, nanos};

    #[test]
    fn different_texts_can_be_the_same_quantity() {
        for (one, other) in [
            ("1", "1000m"),
            ("0.5", "500m"),
            (".5", "500m"),
            ("1Gi", "1024Mi"),
            ("1.5Ki", "1536"),
            ("1e3", "1k"),
            ("1E3", "1k"),
            ("1E", "1000P"),
            ("12e-1", "1200m"),
            ("-1", "-1000m"),
            ("nonsense", "nonsense"),
        ] {
            assert!(is_equal(one, other), "{one} {other}");
        }
        assert!(!is_equal("1G", "1Gi"));
        assert!(!is_equal("1", "one"));
    }

    #[test]
    fn what_is_no_quantity_has_no_value() {
        for text in ["", ".", "Gi", "1 Gi", "1.2.3", "1ZZ", "e3", "1e999999999", "1e-999999999", "ä", "--1"]
        {
            assert_eq!(nanos(text), None, "{text}");
        }
        assert_eq!(nanos(&"9".repeat(50)), None);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[+-]?[0-9.]{0,45}[a-zA-Z0-9+-]{0,8}|.*") {
            let _ = nanos(&text);
        }
    }
}
