use std::collections::BTreeMap;

use super::*;
use crate::dialer::DirectDialer;
use std::sync::Arc;

pub(crate) fn example() -> (ServiceKey, Instance) {
    let service = ServiceKey { name: "shop".to_owned(), ..ServiceKey::default() };
    let instance = Instance {
        id: "web-1".to_owned(),
        host: "10.0.0.7".to_owned(),
        port: 8080,
        cluster: String::new(),
        weight: 2.0,
        metadata: BTreeMap::from([("zone".to_owned(), "a \"b\"/ü".to_owned())]),
        in_service: true,
        may_return: false,
        version: None,
    };
    (service, instance)
}

pub(crate) fn subject<'a>(service: &'a ServiceKey, instance: &'a Instance) -> Subject<'a> {
    Subject { service: Some(service), instance: Some(instance) }
}

fn client(address: &str, credentials: Credentials, options: &HttpOptions) -> Result<HttpRegistry, String> {
    let connection = Connection {
        addresses: vec![address.to_owned()],
        tls: None,
        credentials,
        timeout: Duration::from_secs(1),
        dialer: Arc::new(DirectDialer),
    };
    HttpRegistry::new(&connection, options)
}

fn call() -> Option<HttpCall> {
    Some(HttpCall { method: "PUT".to_owned(), path: "/${id}".to_owned(), ..HttpCall::default() })
}

fn reading(fields: &[&str]) -> Option<HttpReading> {
    let fields = fields.iter().map(|name| ((*name).to_owned(), format!("/{name}"))).collect();
    Some(HttpReading { path: "/".to_owned(), fields, ..HttpReading::default() })
}

#[test]
fn options_that_do_not_fit_together_are_rejected() {
    let own = HttpOptions { register: call(), deregister: call(), ..HttpOptions::default() };
    let steer =
        HttpOptions { put_into_service: call(), take_out_of_service: call(), ..HttpOptions::default() };
    let new = |options: &HttpOptions| client("http://r:1", Credentials::Anonymous, options);
    for (options, expected) in [(&own, (true, false)), (&steer, (false, true))] {
        let registry = new(options).unwrap();
        assert_eq!((registry.capabilities().own, registry.capabilities().steer), expected);
        assert!(!registry.can_read() && !registry.can_list());
    }
    for (options, reason) in [
        (HttpOptions::default(), "no call changes anything"),
        (HttpOptions { deregister: None, ..own.clone() }, "need each other"),
        (HttpOptions { put_into_service: None, ..steer.clone() }, "need each other"),
        (HttpOptions { read: reading(&["host", "port"]), ..own.clone() }, "metadata is needed"),
        (HttpOptions { read: reading(&["host", "port"]), ..steer }, "inService is needed"),
        (HttpOptions { read: reading(&["host"]), ..own.clone() }, "read: field port"),
        (HttpOptions { idempotency_header: "a b".to_owned(), ..own.clone() }, "not a name of a header"),
        (HttpOptions { register: Some(HttpCall::default()), ..own.clone() }, "register: method"),
    ] {
        let error = new(&options).unwrap_err();
        assert!(error.contains(reason), "{error}");
    }
    let options = HttpOptions { read: reading(&["host", "port", "metadata"]), ..own.clone() };
    assert!(new(&options).unwrap().capabilities().by_address);
    let options = HttpOptions { read: reading(&["host", "port", "metadata", "id", "weight"]), ..own.clone() };
    let capabilities = new(&options).unwrap().capabilities();
    assert!(!capabilities.by_address && capabilities.weights);

    for (address, reason) in [
        ("registry:8080", "is not a URL"),
        ("ftp://registry", "is not a URL"),
        ("http://user:sesame@registry", "contains credentials"),
        ("http://registry/?a=b", "is not a URL"),
    ] {
        let error = client(address, Credentials::Anonymous, &own).unwrap_err();
        assert!(error.contains(reason) && !error.contains("sesame"), "{error}");
    }
    let registry = client("http://registry/api/", Credentials::Anonymous, &own).unwrap();
    assert_eq!(registry.addresses(), ["http://registry/api"]);
}

#[test]
fn credentials_are_not_shown() {
    let own = HttpOptions { register: call(), deregister: call(), ..HttpOptions::default() };
    let password = Credentials::Password { user: "ada".to_owned(), password: "sesame".to_owned().into() };
    for credentials in [password, Credentials::Token("sesame".to_owned().into())] {
        let registry = client("http://r:1", credentials, &own).unwrap();
        assert!(!format!("{registry:?}").contains("sesame"));
    }
    let error = client("http://r:1", Credentials::Token("se\nsame".to_owned().into()), &own).unwrap_err();
    assert!(!error.contains("same"), "{error}");
}

#[tokio::test]
async fn what_no_call_can_do_is_rejected_before_anything_is_sent() {
    let own = HttpOptions { register: call(), deregister: call(), ..HttpOptions::default() };
    // Nothing listens there.
    let registry = client("http://127.0.0.1:1", Credentials::Anonymous, &own).unwrap();
    let (service, foreign) = example();
    let mut ours = foreign.clone();
    let owner = crate::Owner {
        cluster: "c1".to_owned(),
        namespace: "shop".to_owned(),
        binding: "web".to_owned(),
        pod: "web-0".to_owned(),
        uid: "1".to_owned(),
    };
    owner.mark(&mut ours.metadata);
    let out = Instance { in_service: false, ..ours.clone() };
    for (change, reason) in [
        (Change::SetInService(service.clone(), ours.clone()), "has no call for it"),
        (Change::Register(service.clone(), foreign.clone()), "no mark of an owner"),
        (Change::Deregister(service.clone(), foreign), "no mark of an owner"),
        (Change::Register(service.clone(), out), "name ${inService}"),
    ] {
        let error = registry.write(&[change]).await.remove(0).unwrap_err();
        assert_eq!(error.kind, RegistryErrorKind::Rejected);
        assert!(error.reason.contains(reason), "{error}");
    }
    let error = registry.write(&[Change::Register(service.clone(), ours)]).await.remove(0).unwrap_err();
    assert_eq!(error.kind, RegistryErrorKind::Unavailable, "{error}");
    // Without a call that reads, the answer is never "none".
    assert_eq!(registry.instances(0, &service).await.unwrap_err().kind, RegistryErrorKind::Rejected);
    assert_eq!(registry.services(0, "c1").await.unwrap_err().kind, RegistryErrorKind::Rejected);
}
