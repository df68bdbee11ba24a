//! Times in whole seconds, as Kubernetes writes them.

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Returns the time as RFC 3339 without a fraction.
pub(crate) fn whole_seconds(time: Timestamp) -> String {
    format!("{time:.0}")
}

pub(super) fn serialize<S: Serializer>(time: &Option<Timestamp>, serializer: S) -> Result<S::Ok, S::Error> {
    time.map(whole_seconds).serialize(serializer)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    text.map(|text| text.parse().map_err(de::Error::custom)).transpose()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    #[test]
    fn fractions_are_cut_off() {
        let time = Timestamp::from_millisecond(1_999).unwrap();
        assert_eq!(super::whole_seconds(time), "1970-01-01T00:00:01Z");
        assert_eq!(super::whole_seconds(Timestamp::UNIX_EPOCH), "1970-01-01T00:00:00Z");
    }
}
