//! What the calls of a registry look like.

use std::collections::BTreeMap;

/// The calls of a registry. Templates name fields as `${field}`: `service`, `namespace`, `group`, `cluster`, `id`, `host`,
/// `port`, `weight`, `inService`, and `metadata['<key>']` for one entry of the metadata. `${field:-text}` stands for the
/// text if the field is empty or missing, `$$` for `$`.
#[derive(Clone, Debug)]
pub struct HttpOptions {
    /// Registers an instance, or replaces it.
    pub register: Option<HttpCall>,
    /// Deregisters an instance.
    pub deregister: Option<HttpCall>,
    /// Puts an instance into service.
    pub put_into_service: Option<HttpCall>,
    /// Takes an instance out of service.
    pub take_out_of_service: Option<HttpCall>,
    /// Reads the instances of a service.
    pub read: Option<HttpReading>,
    /// Lists the services.
    pub list: Option<HttpListing>,
    /// The header with a key that is the same when a change is repeated because its result is not known. Empty for none.
    pub idempotency_header: String,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            register: None,
            deregister: None,
            put_into_service: None,
            take_out_of_service: None,
            read: None,
            list: None,
            idempotency_header: "Idempotency-Key".to_owned(),
        }
    }
}

/// One kind of call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpCall {
    /// The method: GET, POST, PUT, PATCH or DELETE.
    pub method: String,
    /// A template for path and query, which follow the address. It begins with `/`. Fields are percent-encoded.
    pub path: String,
    /// Further headers. The values are templates.
    pub headers: BTreeMap<String, String>,
    /// The body: JSON whose strings are templates. A string `"${port}"`, `"${weight}"`, `"${inService}"` or `"${metadata}"`
    /// becomes a number, a boolean, or the object of all metadata; `"${port|string}"` remains a string. Empty for none.
    pub body: String,
    /// What the statuses of responses mean.
    pub statuses: HttpStatuses,
}

/// What the statuses of responses mean. Other statuses: 425, 429 and 503 mean that nothing was changed, unless `retry` is
/// set; other 5xx and 2xx that the change may have been made; 401 and 403 that the credentials are wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpStatuses {
    /// The change is made. Empty for 200 to 299.
    pub done: Vec<u16>,
    /// There is no such instance. A deregistration has succeeded then, other changes have failed.
    pub gone: Vec<u16>,
    /// Nothing was changed, and the call can be repeated.
    pub retry: Vec<u16>,
}

/// How the instances of a service are read: with `GET`, from a response of JSON that contains all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpReading {
    /// A template for path and query, with the fields `service`, `namespace` and `group`.
    pub path: String,
    /// The JSON pointer (RFC 6901) to the array of instances.
    pub instances: String,
    /// The JSON pointers in an instance to its fields: `host` and `port`, and optionally `id`, `cluster`, `weight`,
    /// `inService` and `metadata`. Without `id`, an instance is known by its address.
    pub fields: BTreeMap<String, String>,
    /// The value at `inService` of an instance in service. Empty for `true`.
    pub in_service_value: String,
    /// The statuses that mean that there is no such service. All but these and 200 are errors.
    pub missing: Vec<u16>,
}

/// How the services are listed: with `GET`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpListing {
    /// Path and query.
    pub path: String,
    /// The JSON pointer to the array of services.
    pub services: String,
    /// The JSON pointer in a service to its name. Empty if the services are names.
    pub name: String,
}
