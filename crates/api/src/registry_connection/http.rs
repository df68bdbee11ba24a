//! The calls of a registry with an HTTP interface of its own.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The calls of a registry with an HTTP interface of its own. Templates name fields as `${field}`: `service`,
/// `namespace`, `group`, `cluster`, `id`, `host`, `port`, `weight`, `inService`, and `metadata['<key>']`.
/// `${field:-text}` stands for the text if the field is empty, `$$` for `$`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HttpConnection {
    /// Registers an instance, or replaces it. Needed for the mode Own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub register: Option<HttpCall>,
    /// Deregisters an instance. Needed for the mode Own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deregister: Option<HttpCall>,
    /// Puts an instance into service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub put_into_service: Option<HttpCall>,
    /// Takes an instance out of service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub take_out_of_service: Option<HttpCall>,
    /// Reads the instances of a service. Without it Podward cannot read back what it wrote: the evidence is ASSUMED, and
    /// nothing is compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<HttpReading>,
    /// Lists the services. Without it Podward compares the services only that its pods have at the moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub list: Option<HttpListing>,
    /// The header with a key that stays the same when a change is repeated because its result is not known. Empty for
    /// none.
    #[serde(default = "default_idempotency_header")]
    #[schemars(length(max = 100))]
    pub idempotency_header: String,
}

/// One kind of call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HttpCall {
    /// The method: GET, POST, PUT, PATCH or DELETE.
    #[schemars(length(max = 10))]
    pub method: String,
    /// A template for path and query, which follow the address. It begins with `/`. Fields are percent-encoded.
    #[schemars(length(max = 1000))]
    pub path: String,
    /// Further headers. The values are templates.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(length(max = 32))]
    pub headers: BTreeMap<String, String>,
    /// The body: JSON whose strings are templates. A string `"${port}"`, `"${weight}"`, `"${inService}"` or
    /// `"${metadata}"` becomes a number, a boolean, or the object of all metadata; `"${port|string}"` remains a string.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 16_384))]
    pub body: String,
    /// What the statuses of responses mean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub statuses: Option<HttpStatuses>,
}

/// What the statuses of responses mean. Other statuses: 425, 429 and 503 mean that nothing was changed, unless `retry` is
/// set; other 5xx and 2xx that the change may have been made; 401 and 403 that the credentials are wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HttpStatuses {
    /// The change is made. Empty for 200 to 299.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(range(min = 100, max = 599)))]
    pub done: Vec<u16>,
    /// There is no such instance. A deregistration has succeeded then, other changes have failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(range(min = 100, max = 599)))]
    pub gone: Vec<u16>,
    /// Nothing was changed, and the call can be repeated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(range(min = 100, max = 599)))]
    pub retry: Vec<u16>,
}

/// How the instances of a service are read: with `GET`, from a response of JSON that contains all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HttpReading {
    /// A template for path and query, with the fields `service`, `namespace` and `group`.
    #[schemars(length(max = 1000))]
    pub path: String,
    /// The JSON pointer (RFC 6901) to the array of instances. Empty if the response is the array.
    #[serde(default)]
    #[schemars(length(max = 300))]
    pub instances: String,
    /// The JSON pointers in an instance to its fields: `host` and `port`, and optionally `id`, `cluster`, `weight`,
    /// `inService` and `metadata`. Without `id`, an instance is known by its address.
    #[schemars(length(max = 7))]
    pub fields: BTreeMap<String, String>,
    /// The value at `inService` of an instance in service. Empty for `true`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 100))]
    pub in_service_value: String,
    /// The statuses that mean that there is no such service. All but these and 200 are errors.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(range(min = 100, max = 599)))]
    pub missing: Vec<u16>,
}

/// How the services are listed: with `GET`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HttpListing {
    /// Path and query.
    #[schemars(length(max = 1000))]
    pub path: String,
    /// The JSON pointer to the array of services.
    #[serde(default)]
    #[schemars(length(max = 300))]
    pub services: String,
    /// The JSON pointer in a service to its name. Empty if the services are names.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 300))]
    pub name: String,
}

fn default_idempotency_header() -> String {
    "Idempotency-Key".to_owned()
}
