//! Metrics of a registry in tests.

use prometheus_client::registry::Registry;

/// Returns the metrics of `registry` in the text format of OpenMetrics.
///
/// # Panics
/// When a metric cannot be encoded.
#[must_use]
#[expect(clippy::expect_used, reason = "only tests call it")]
pub fn metrics_text(registry: &Registry) -> String {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).expect("encode the metrics");
    text
}
