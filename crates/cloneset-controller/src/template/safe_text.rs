//! Text of random or hashed numbers in names: without vowels, so that it contains no words, and without characters that
//! look alike. Kubernetes uses the same characters.

const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// Returns the number in `length` characters. Higher digits are cut off.
pub(super) fn encode(mut number: u64, length: usize) -> String {
    let base = ALPHABET.len() as u64;
    (0..length)
        .filter_map(|_| {
            let digit = usize::try_from(number % base).ok()?;
            number /= base;
            ALPHABET.get(digit).copied().map(char::from)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::encode;

    #[test]
    fn numbers_are_texts_of_the_length() {
        assert_eq!(encode(0, 5), "bbbbb");
        assert_eq!(encode(28, 3), "ccb");
        assert_eq!(encode(u64::MAX, 10).len(), 10);
        assert_ne!(encode(u64::MAX, 10), encode(u64::MAX - 1, 10));
        assert_eq!(encode(1, 0), "");
    }
}
