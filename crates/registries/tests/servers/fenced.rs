//! Changes that may not be made any more.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use anyhow::Result;
use podward_registries::{
    Change, Eureka, EurekaOptions, HttpCall, HttpOptions, HttpRegistry, Instance, Nacos, Registry,
    RegistryError, RegistryErrorKind, ZooKeeper, ZooKeeperOptions,
};

use crate::common::{connection, instance, only_first, refused, service, too_late};
use crate::hostile::over_http;
use crate::http;

/// Where each change is a call of its own, each is asked about.
#[tokio::test]
async fn each_change_is_checked_before_it_is_made() -> Result<()> {
    let answer = "HTTP/1.1 404 No\r\ncontent-length: 0\r\n\r\n";
    let connection = connection(vec![http::serve_always(answer).await?]);
    let mut registries = over_http(&connection)?;
    let zookeeper = ZooKeeper::new(&connection_to_nowhere(), &ZooKeeperOptions::default());
    registries.push(("ZooKeeper", Arc::new(zookeeper.map_err(anyhow::Error::msg)?)));
    let changes = ["1", "2"]
        .map(|number| Change::Register(service("web"), instance(number, &format!("10.0.0.{number}"))));
    let may_change = |change: &Change| match change.target().1.id.as_str() {
        "web-1" => Ok(()),
        _ => Err(RegistryError {
            doing: change.to_string(),
            address: String::new(),
            reason: "too late".to_owned(),
            kind: RegistryErrorKind::Unavailable,
        }),
    };
    for (kind, registry) in registries.into_iter().filter(|(kind, _)| *kind != "Consul") {
        let results = registry.write_while(&changes, &may_change).await;
        let late: Vec<bool> = results
            .iter()
            .map(|result| result.as_ref().is_err_and(|error| error.reason == "too late"))
            .collect();
        assert_eq!(late, [false, true], "{kind}: {results:?}");
    }
    Ok(())
}

/// Eureka is read before a change, which may take the whole time of a call.
#[tokio::test]
async fn a_change_of_eureka_is_checked_after_the_read_before_it() -> Result<()> {
    let (address, requests) = http::serve_recorded("HTTP/1.1 404 No\r\ncontent-length: 0\r\n\r\n").await?;
    let seen = || requests.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let eureka = Eureka::new(&connection(vec![address]), EurekaOptions::default());
    let eureka = eureka.map_err(anyhow::Error::msg)?;
    let (web, ours) = (service("web"), instance("1", "10.0.0.1"));
    let of_application = Instance { metadata: BTreeMap::new(), ..ours.clone() };
    for change in [
        Change::Register(web.clone(), ours.clone()),
        Change::Deregister(web.clone(), ours),
        Change::SetInService(web, of_application),
    ] {
        let before = seen().len();
        let may_change = |change: &Change| if seen().len() == before { Ok(()) } else { too_late(change) };
        let results = eureka.write_while(std::slice::from_ref(&change), &may_change).await;
        let is_late = |result: &Result<_, RegistryError>| {
            result.as_ref().is_err_and(|error| error.reason == "too late")
        };
        assert!(results.iter().all(is_late), "{change}: {results:?}");
        let [request] = &seen()[before..] else { panic!("{change}: {:?}", &seen()[before..]) };
        assert!(request.starts_with("GET "), "{change}: {request}");
    }
    Ok(())
}

/// Nacos needs a second call for a registration. What is registered must not be probed, also if that call is not made.
#[tokio::test]
async fn a_registration_of_nacos_is_checked_before_its_second_call() -> Result<()> {
    let answer =
        "HTTP/1.1 200 OK\r\ncontent-length: 40\r\n\r\n{\"code\":0,\"message\":\"success\",\"data\":[]}";
    let (address, requests) = http::serve_recorded(answer).await?;
    let seen = || requests.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let nacos = Nacos::new(&connection(vec![address])).map_err(anyhow::Error::msg)?;
    let is_sent = || seen().iter().any(|request| request.starts_with("POST "));
    let may_change = |change: &Change| if is_sent() { too_late(change) } else { Ok(()) };
    let change = Change::Register(service("web"), instance("1", "10.0.0.1"));
    let results = nacos.write_while(&[change], &may_change).await;
    assert_eq!(results.len(), 1);
    assert!(results[0].as_ref().is_err_and(|error| error.reason == "too late"), "{results:?}");
    let changes: Vec<_> = seen().into_iter().filter(|request| !request.starts_with("GET ")).collect();
    assert_eq!(changes, ["POST /nacos/v3/admin/ns/instance", "PUT /nacos/v3/admin/ns/cluster"]);
    Ok(())
}

/// An address may take the whole time of a call.
#[tokio::test]
async fn a_change_is_checked_before_it_is_sent_to_another_address() -> Result<()> {
    let call =
        || Some(HttpCall { method: "PUT".to_owned(), path: "/${id}".to_owned(), ..HttpCall::default() });
    let options = HttpOptions { register: call(), deregister: call(), ..HttpOptions::default() };
    // Nobody listens there.
    let clients = |ports: &[u16]| {
        let with =
            |scheme| connection(ports.iter().map(|port| format!("{scheme}127.0.0.1:{port}")).collect());
        let zookeeper = ZooKeeper::new(&with(""), &ZooKeeperOptions::default());
        let own = HttpRegistry::new(&with("http://"), &options);
        let clients: [(&str, Box<dyn Registry>); 2] = [
            ("ZooKeeper", Box::new(zookeeper.map_err(anyhow::Error::msg)?)),
            ("Http", Box::new(own.map_err(anyhow::Error::msg)?)),
        ];
        anyhow::Ok(clients)
    };
    let change = [Change::Register(service("web"), instance("1", "10.0.0.1"))];
    for ((kind, one), (_, two)) in clients(&[1])?.into_iter().zip(clients(&[1, 2])?) {
        let is_late = async |registry: &dyn Registry, allowed| {
            let error = refused(registry.write_while(&change, &only_first(allowed)).await.remove(0))?;
            anyhow::Ok(error.reason == "too late")
        };
        let mut needed = 1;
        while is_late(&*one, needed).await? {
            needed += 1;
        }
        assert!(is_late(&*two, needed).await?, "{kind}");
    }
    Ok(())
}

fn connection_to_nowhere() -> podward_registries::Connection {
    connection(vec!["127.0.0.1:1".to_owned()])
}
