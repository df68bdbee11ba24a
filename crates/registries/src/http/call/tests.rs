use std::collections::BTreeMap;

use super::*;
use crate::http::tests::{example, subject};

fn call(method: &str, path: &str) -> HttpCall {
    HttpCall { method: method.to_owned(), path: path.to_owned(), ..HttpCall::default() }
}

fn url(path: &str) -> Result<String, String> {
    let (service, instance) = example();
    let request = Call::new(&call("PUT", path), Scope::Instance)?;
    Ok(request.request("http://r:1/api", subject(&service, &instance))?.uri().to_string())
}

#[test]
fn fields_of_a_path_are_percent_encoded() {
    for (path, expected) in [
        ("/s/${service}/${id}", "/s/shop/web-1"),
        ("/z/${metadata['zone']}?ns=${namespace}", "/z/a%20%22b%22%2F%C3%BC?ns="),
        ("/n/${namespace:-public}", "/n/public"),
        ("/h?at=${host}:${port}&x=%20", "/h?at=10.0.0.7:8080&x=%20"),
    ] {
        assert_eq!(url(path), Ok(format!("http://r:1/api{expected}")), "{path}");
    }
}

#[test]
fn a_path_never_leads_elsewhere() {
    let error = url("/s/${service}/i/${group}").unwrap_err();
    assert!(error.contains("group is empty"), "{error}");
    let (service, instance) = example();
    let call = Call::new(&call("DELETE", "/s/${service}/i/${id}"), Scope::Instance).unwrap();
    for (id, reason) in [("", "id is empty"), ("..", "leads to another"), (".", "leads to another")] {
        let instance = crate::Instance { id: id.to_owned(), ..instance.clone() };
        let error = call.request("http://r:1", subject(&service, &instance)).unwrap_err();
        assert!(error.contains(reason), "{id:?}: {error}");
    }
    let instance = crate::Instance { id: "../x?y#z".to_owned(), ..instance };
    let request = call.request("http://r:1", subject(&service, &instance)).unwrap();
    assert_eq!(request.uri(), "http://r:1/s/shop/i/..%2Fx%3Fy%23z");
}

#[test]
fn headers_and_body_are_filled_in() {
    let (service, mut instance) = example();
    let options = HttpCall {
        headers: BTreeMap::from([("X-Id".to_owned(), "${service}.${id}".to_owned())]),
        body: r#"{"port":"${port}"}"#.to_owned(),
        ..call("POST", "/")
    };
    let call = Call::new(&options, Scope::Instance).unwrap();
    let request = call.request("http://r:1", subject(&service, &instance)).unwrap();
    assert_eq!(request.headers()["x-id"], "shop.web-1");
    assert_eq!(request.headers()[CONTENT_TYPE], "application/json");
    assert_eq!(request.method(), Method::POST);
    instance.id = "a\r\nX-Evil: 1".to_owned();
    let error = call.request("http://r:1", subject(&service, &instance)).unwrap_err();
    assert!(error.contains("header x-id"), "{error}");
}

#[test]
fn wrong_options_are_rejected_with_the_reason() {
    let header =
        |name: &str| HttpCall { headers: [(name.to_owned(), "x".to_owned())].into(), ..call("GET", "/") };
    let statuses = |done: &[u16], gone: &[u16]| HttpCall {
        statuses: HttpStatuses { done: done.to_vec(), gone: gone.to_vec(), retry: Vec::new() },
        ..call("GET", "/")
    };
    for (options, reason) in [
        (call("HEAD", "/"), "use GET"),
        (call("get", "/"), "use GET"),
        (call("GET", "s"), "must begin with '/'"),
        (call("GET", "${id}"), "must begin with '/'"),
        (call("GET", "/a b"), "not the path"),
        (call("GET", "/#x"), "not the path"),
        (call("GET", "/${ip}"), "no field \"ip\""),
        (call("GET", "/${metadata}"), "only stand in the body"),
        (header("Authorization"), "is set by Podward"),
        (header("Host"), "is set by Podward"),
        (header("a b"), "not a name"),
        (statuses(&[200], &[200]), "two meanings"),
        (statuses(&[100], &[]), "not a status"),
    ] {
        let error = Call::new(&options, Scope::Instance).unwrap_err();
        assert!(error.contains(reason), "{options:?}: {error}");
    }
}

#[test]
fn statuses_have_meanings() {
    let default = Call::new(&call("GET", "/"), Scope::Instance).unwrap();
    let own = HttpStatuses { done: vec![200, 409], gone: vec![404], retry: vec![423] };
    let own = Call::new(&HttpCall { statuses: own, ..call("GET", "/") }, Scope::Instance).unwrap();
    use Verdict::{Done, Failed, Gone, Retry, Unknown};
    for (status, by_default, by_own) in [
        (200, Done, Done),
        (202, Done, Unknown),
        (302, Failed, Failed),
        (404, Failed, Gone),
        (409, Failed, Done),
        (423, Failed, Retry),
        (429, Retry, Failed),
        (500, Unknown, Unknown),
        (503, Retry, Unknown),
    ] {
        let status = StatusCode::from_u16(status).unwrap();
        assert_eq!((default.verdict(status), own.verdict(status)), (by_default, by_own), "{status}");
    }
}
