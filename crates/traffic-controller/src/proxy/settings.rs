//! The settings of a kube-proxy that the evidence depends on.

use std::time::Duration;

use serde_json::Value;

/// The times between syncs of a kube-proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProxySettings {
    /// `minSyncPeriod`: the minimum time between two syncs. A change may wait for this long while kube-proxy looks idle.
    pub(crate) min_sync_period: Duration,
    /// `syncPeriod`: after this time a sync that failed is repeated.
    pub(crate) sync_period: Duration,
}

impl Default for ProxySettings {
    /// Returns the defaults of kube-proxy.
    fn default() -> Self {
        Self { min_sync_period: Duration::from_secs(1), sync_period: Duration::from_secs(30) }
    }
}

impl ProxySettings {
    /// Parses the response of kube-proxy's `/configz`, its configuration as JSON. The names of the fields depend on its
    /// version, and each mode has fields of its own, so the longest time counts, and at least the default.
    ///
    /// # Errors
    /// Fails if the text is not a configuration, or a time in it is not valid.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let config: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let (mut settings, mut known) = (Self::default(), false);
        settings.add(&config, &mut known)?;
        if known { Ok(settings) } else { Err("it contains no minSyncPeriod".to_owned()) }
    }

    fn add(&mut self, value: &Value, known: &mut bool) -> Result<(), String> {
        for (name, value) in value.as_object().into_iter().flatten() {
            let setting = match name.to_ascii_lowercase().as_str() {
                "minsyncperiod" => &mut self.min_sync_period,
                "syncperiod" => &mut self.sync_period,
                _ => {
                    self.add(value, known)?;
                    continue;
                }
            };
            let text = value.as_str().ok_or_else(|| format!("{name} is {value}"))?;
            let time = text.parse::<jiff::SignedDuration>().map_err(|error| format!("{name}: {error}"))?;
            let time = Duration::try_from(time).map_err(|error| format!("{name}: {error}"))?;
            *setting = time.max(*setting);
            *known |= name.eq_ignore_ascii_case("minSyncPeriod");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(min: u64, period: u64) -> Result<ProxySettings, String> {
        let time = Duration::from_millis;
        Ok(ProxySettings { min_sync_period: time(min), sync_period: time(period) })
    }

    #[test]
    fn the_configuration_is_parsed() {
        let now = r#"{"kubeproxy.config.k8s.io":{"mode":"nftables","iptables":{"minSyncPeriod":"1s","syncPeriod":"30s"},
            "nftables":{"minSyncPeriod":"2m30.5s","syncPeriod":"1m0s"},"configSyncPeriod":"15m0s"}}"#;
        assert_eq!(ProxySettings::parse(now), settings(150_500, 60_000));
        let before =
            r#"{"kubeproxy.config.k8s.io":{"IPTables":{"MinSyncPeriod":"500ms","SyncPeriod":"1h0m0s"}}}"#;
        assert_eq!(ProxySettings::parse(before), settings(1000, 3_600_000), "at least the default");
        for bad in [
            "",
            "[]",
            "{}",
            r#"{"x":{"syncPeriod":"1s"}}"#,
            r#"{"minSyncPeriod":5}"#,
            r#"{"minSyncPeriod":"-1s"}"#,
            r#"{"minSyncPeriod":"soon"}"#,
        ] {
            assert!(ProxySettings::parse(bad).is_err(), "{bad}");
        }
    }
}
