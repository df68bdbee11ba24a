//! The text about an operation that is announced with only one of its two labels.

use super::keys::Stage;

/// Returns the text that names the missing label of an incomplete announcement.
#[must_use]
pub(crate) fn incomplete_text(id: &str, has_operating: bool) -> String {
    let (there, missing) = if has_operating {
        (Stage::Operating, Stage::OperationType)
    } else {
        (Stage::OperationType, Stage::Operating)
    };
    format!(
        "operation {id} is incomplete: {} is there, {} is missing or empty; set both in one write, or remove both",
        there.key(id),
        missing.key(id)
    )
}
