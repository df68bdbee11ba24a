//! What Dubbo can store of an instance.

use crate::instance::Instance;

/// Dubbo's weights are whole numbers, and 100 by default.
pub(super) const WEIGHT: f64 = 100.0;
/// The parameters that are fields of an instance, or that this client sets.
pub(super) const RESERVED: [&str; 4] = ["weight", "disabled", "enabled", "dynamic"];

/// Checks that Dubbo can store a weight as it is.
pub(in crate::zookeeper) fn check_weight(weight: f64) -> Result<(), String> {
    let of_dubbo = weight * WEIGHT;
    match (0.0..=1_000_000.0).contains(&weight) && (of_dubbo - of_dubbo.round()).abs() < 1e-6 {
        true => Ok(()),
        false => Err(format!(
            "the weight {weight} times {WEIGHT} is not a whole number from 0 on, as the weights of Dubbo are"
        )),
    }
}

/// Checks what becomes a URL.
pub(super) fn check(instance: &Instance) -> Result<(), String> {
    if instance.host.is_empty() || instance.host.contains(['/', '?', '&', '@', '%']) || instance.port == 0 {
        return Err(format!("{:?} and port {} are not an address", instance.host, instance.port));
    }
    check_weight(instance.weight)?;
    for (key, value) in &instance.metadata {
        if RESERVED.contains(&key.as_str()) {
            return Err(format!(
                "the parameter {key} of the URL is set by the registration, not by the metadata"
            ));
        }
        if key.is_empty() || key.contains(['&', '=', ';', '#']) || value.contains(['&', ';', '#']) {
            return Err(format!("the metadata {key} cannot be a parameter of a URL"));
        }
    }
    Ok(())
}
