//! What derived schemas need to be taken by the API server as they are meant.

use schemars::Schema;

/// The API server knows no `uint32`, and warns of it.
pub(crate) fn known_format(schema: &mut Schema) {
    schema.insert("format".to_owned(), "int64".into());
}
