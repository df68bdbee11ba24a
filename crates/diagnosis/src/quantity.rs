//! Quantities of Kubernetes, such as `500m` and `2Gi`, as numbers to compare.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use podward_api::quantity::nanos;

/// Returns a quantity in thousandths: CPU in millicores, memory in thousandths of a byte. A quantity that cannot be
/// parsed is 0.
pub(crate) fn thousandths(quantity: &Quantity) -> f64 {
    nanos(&quantity.0).unwrap_or_default() as f64 / 1e6
}

/// Returns an amount of `resource` for people: CPU in cores, memory in MiB, other resources as numbers.
pub(crate) fn amount(resource: &str, thousandths: f64) -> String {
    let rounded = |number: f64| format!("{}", (number * 100.0).round() / 100.0);
    match resource {
        "cpu" => format!("{} CPU", rounded(thousandths / 1e3)),
        "memory" | "ephemeral-storage" => format!("{} MiB", rounded(thousandths / 1_048_576e3)),
        _ => rounded(thousandths / 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_compared_in_one_unit() {
        let read = |text: &str| thousandths(&Quantity(text.to_owned()));
        assert_eq!(read("500m"), 500.0);
        assert_eq!(read("2"), 2_000.0);
        assert_eq!(read("1e3"), 1_000_000.0);
        assert_eq!(read("1Gi"), read("1024Mi"));
        assert_eq!(read("nonsense"), 0.0);
        assert_eq!(amount("cpu", 1_500.0), "1.5 CPU");
        assert_eq!(amount("memory", read("1Gi")), "1024 MiB");
        assert_eq!(amount("nvidia.com/gpu", 1_000.0), "1");
    }
}
