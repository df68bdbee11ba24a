//! Changes to derived schemas.

use schemars::Schema;

/// Sets the format to `int64`. The API server warns about the derived format `uint32`, which it does not know.
pub(crate) fn known_format(schema: &mut Schema) {
    schema.insert("format".to_owned(), "int64".into());
}
