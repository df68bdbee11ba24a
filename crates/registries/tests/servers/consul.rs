//! The client of Consul against Consul.

use std::time::Duration;

use anyhow::{Context, Result};
use podward_registries::{
    Change, Connection, Consul, ConsulOptions, Credentials, Instance, InstanceVersion, Owner, Registry,
    RegistryErrorKind, TlsOptions,
};
use registry_servers::{ConsulServer, ConsulServerOptions, TestCertificates};

use crate::common::{self, connection, instance, owner, service, write};
use crate::http;

const NODE: &str = "podward-c1";

fn client(connection: &Connection) -> Result<Consul> {
    let options = ConsulOptions { node: NODE.to_owned(), ..ConsulOptions::default() };
    Consul::new(connection, options).map_err(anyhow::Error::msg)
}

async fn started() -> Result<(ConsulServer, Consul)> {
    let server = ConsulServer::start(ConsulServerOptions::default()).await?;
    let consul = client(&connection(vec![server.url()]))?;
    common::until_writable(&consul).await?;
    Ok((server, consul))
}

#[tokio::test]
async fn an_instance_is_registered_taken_out_put_back_and_removed() -> Result<()> {
    let (server, consul) = started().await?;
    let (web, wanted) = (service("web shop"), instance("1", "10.0.0.7"));
    assert_eq!(consul.instances(0, &web).await?, []);
    write(&consul, Change::Register(web.clone(), wanted.clone())).await?;
    // The same again.
    write(&consul, Change::Register(web.clone(), wanted.clone())).await?;
    let stored = common::only(consul.instances(0, &web).await?)?;
    assert!(stored.version.is_some());
    assert_eq!(Instance { version: None, ..stored.clone() }, wanted);
    assert_eq!(stored.owner(), Some(owner("1")));
    assert_eq!(consul.services(0, "c1").await?, std::slice::from_ref(&web));

    // Clients that ask Consul for passing instances see what the client says.
    let passing = format!("{}/v1/health/service/web%20shop?passing", server.url());
    assert!(http::get(&passing).await?.contains("10.0.0.7"));
    let out = Instance { in_service: false, ..stored.clone() };
    write(&consul, Change::SetInService(web.clone(), out)).await?;
    assert_eq!(http::get(&passing).await?, "[]");
    assert!(!common::only(consul.instances(0, &web).await?)?.in_service);
    write(&consul, Change::SetInService(web.clone(), stored.clone())).await?;
    assert!(http::get(&passing).await?.contains("10.0.0.7"));

    write(&consul, Change::Deregister(web.clone(), stored.clone())).await?;
    write(&consul, Change::Deregister(web.clone(), stored)).await?;
    assert_eq!(consul.instances(0, &web).await?, []);
    assert_eq!(consul.services(0, "c1").await?, []);
    Ok(())
}

#[tokio::test]
async fn what_others_have_changed_is_not_overwritten() -> Result<()> {
    let (server, consul) = started().await?;
    let web = service("web");
    write(&consul, Change::Register(web.clone(), instance("1", "10.0.0.7"))).await?;
    let stored = common::only(consul.instances(0, &web).await?)?;
    // Somebody edits the instance.
    let edited = serde_json::json!({
        "Node": NODE, "SkipNodeUpdate": true,
        "Service": {"ID": stored.id, "Service": "web", "Address": "10.0.0.7", "Port": 8080, "Meta": stored.metadata, "Weights": {"Passing": 9, "Warning": 1}},
    });
    http::put(&format!("{}/v1/catalog/register", server.url()), &edited).await?;
    for change in
        [Change::Register(web.clone(), stored.clone()), Change::Deregister(web.clone(), stored.clone())]
    {
        let error = write(&consul, change).await.unwrap_err();
        assert_eq!(error.kind, RegistryErrorKind::Conflict, "{error}");
    }
    let now = common::only(consul.instances(0, &web).await?)?;
    assert_eq!(now.weight, 9.0);
    write(&consul, Change::Deregister(web.clone(), now)).await?;

    // An instance on the node of an agent is not ours, whatever it says.
    let foreign = serde_json::json!({
        "Node": "other", "Address": "10.0.0.1",
        "Service": {"ID": stored.id, "Service": "web", "Port": 80, "Meta": stored.metadata},
    });
    http::put(&format!("{}/v1/catalog/register", server.url()), &foreign).await?;
    let foreign = common::only(consul.instances(0, &web).await?)?;
    assert_eq!((foreign.owner(), foreign.host.as_str()), (None, "10.0.0.1"));
    let out = write(&consul, Change::SetInService(web, foreign)).await.unwrap_err();
    assert_eq!(out.kind, RegistryErrorKind::Conflict, "{out}");
    Ok(())
}

/// Without a version, an entry of the client's own node is replaced only if it has the same mark.
#[tokio::test]
async fn an_entry_with_another_mark_is_not_overwritten() -> Result<()> {
    let (_server, consul) = started().await?;
    let web = service("web");
    let mut theirs = instance("1", "10.0.0.7");
    Owner { cluster: "c2".to_owned(), ..owner("1") }.mark(&mut theirs.metadata);
    write(&consul, Change::Register(web.clone(), theirs.clone())).await?;
    let ours = instance("1", "10.0.0.8");
    // The entry is the same whatever the name of its service is.
    let changes = [
        Change::Register(web.clone(), ours.clone()),
        Change::Deregister(web.clone(), ours.clone()),
        Change::Register(service("shop"), ours.clone()),
        Change::Register(web.clone(), instance("2", "10.0.0.9")),
    ];
    let results = consul.write(&changes).await;
    for result in &results[..3] {
        let error = result.as_ref().unwrap_err();
        assert_eq!(error.kind, RegistryErrorKind::Conflict, "{error}");
        assert!(error.reason.contains("instance web-1 of "), "{error}");
    }
    assert_eq!(results[3], Ok(()));
    let stored = consul.instances(0, &web).await?;
    let of_them = stored.iter().find(|stored| stored.id == "web-1").context("it is gone")?;
    assert_eq!((of_them.owner(), of_them.host.as_str()), (theirs.owner(), "10.0.0.7"));
    // Our own moves to another service.
    write(&consul, Change::Register(service("shop"), instance("2", "10.0.0.9"))).await?;
    assert_eq!(consul.instances(0, &web).await?.len(), 1);
    assert_eq!(consul.instances(0, &service("shop")).await?.len(), 1);
    Ok(())
}

/// Another replica may have changed the instance after the first transaction.
#[tokio::test]
async fn a_transaction_that_is_sent_again_is_checked_before() -> Result<()> {
    let (_server, consul) = started().await?;
    let (web, wanted) = (service("web"), instance("1", "10.0.0.7"));
    write(&consul, Change::Register(web.clone(), wanted.clone())).await?;
    let changes = [
        Change::Register(web.clone(), Instance { weight: 3.0, ..wanted.clone() }),
        Change::Register(web.clone(), instance("2", "10.0.0.8")),
    ];
    for result in consul.write_while(&changes, &common::too_late).await {
        assert_eq!(common::refused(result)?.reason, "too late");
    }
    assert_eq!(common::only(consul.instances(0, &web).await?)?.weight, wanted.weight);
    let of_first = |change: &Change| match change == &changes[0] {
        true => Ok(()),
        false => common::too_late(change),
    };
    let results = consul.write_while(&changes, &of_first).await;
    assert!(results[0].is_ok() && results[1].is_err(), "{results:?}");
    assert_eq!(common::only(consul.instances(0, &web).await?)?.weight, 3.0);
    Ok(())
}

/// What is stored after a change with a stale version is read by an address that answers.
#[tokio::test]
async fn a_stale_removal_needs_one_address_that_answers() -> Result<()> {
    let (server, consul) = started().await?;
    let web = service("web");
    write(&consul, Change::Register(web.clone(), instance("1", "10.0.0.7"))).await?;
    let stored = common::only(consul.instances(0, &web).await?)?;
    write(&consul, Change::Deregister(web.clone(), stored.clone())).await?;
    let unused = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let two = client(&connection(vec![format!("http://{unused}"), server.url()]))?;
    write(&two, Change::Deregister(web.clone(), stored)).await?;
    Ok(())
}

#[tokio::test]
async fn weights_that_consul_does_not_have_are_rejected() -> Result<()> {
    let (_server, consul) = started().await?;
    let web = service("web");
    for weight in [0.0, 0.5, 1.5, 65_536.0] {
        let change = Change::Register(web.clone(), Instance { weight, ..instance("1", "10.0.0.7") });
        let error = write(&consul, change).await.unwrap_err();
        assert_eq!(error.kind, RegistryErrorKind::Rejected, "{error}");
        assert!(error.reason.contains(&weight.to_string()), "{error}");
    }
    assert_eq!(consul.instances(0, &web).await?, []);
    Ok(())
}

#[tokio::test]
async fn one_bad_change_does_not_stop_the_others() -> Result<()> {
    let (_server, consul) = started().await?;
    let web = service("web");
    let batch = consul.capabilities().batch;
    let mut changes: Vec<Change> = (0..batch)
        .map(|number| Change::Register(web.clone(), instance(&number.to_string(), "10.0.0.7")))
        .collect();
    let mut bad_key = instance("bad", "10.0.0.8");
    bad_key.metadata.insert("user.name".to_owned(), String::new());
    changes[3] = Change::Register(web.clone(), bad_key);
    let mut stale = instance("stale", "10.0.0.9");
    stale.version = Some(InstanceVersion(7));
    changes[9] = Change::Register(web.clone(), stale);
    let missing = instance("missing", "10.0.0.9");
    changes[batch - 1] = Change::SetInService(web.clone(), missing);
    let results = consul.write(&changes).await;
    let kinds: Vec<(usize, RegistryErrorKind)> = results
        .iter()
        .enumerate()
        .filter_map(|(at, result)| Some((at, result.as_ref().err()?.kind)))
        .collect();
    let (rejected, conflict) = (RegistryErrorKind::Rejected, RegistryErrorKind::Conflict);
    assert_eq!(kinds, [(3, rejected), (9, conflict), (batch - 1, conflict)]);
    let error = results[3].as_ref().unwrap_err().to_string();
    assert!(
        error.contains("register 10.0.0.8:8080 of service web") && error.contains("user.name"),
        "{error}"
    );
    assert_eq!(consul.instances(0, &web).await?.len(), batch - 3);
    Ok(())
}

#[tokio::test]
async fn a_server_that_is_down_is_not_an_empty_one() -> Result<()> {
    let (mut server, consul) = started().await?;
    let web = service("web");
    write(&consul, Change::Register(web.clone(), instance("1", "10.0.0.7"))).await?;
    server.process.stop().await?;
    let error = consul.instances(0, &web).await.unwrap_err();
    assert_eq!(error.kind, RegistryErrorKind::Unavailable, "{error}");
    let error = write(&consul, Change::Register(web.clone(), instance("2", "10.0.0.8"))).await.unwrap_err();
    assert_eq!(error.kind, RegistryErrorKind::Unavailable, "{error}");
    // With another address the write arrives.
    let second = ConsulServer::start(ConsulServerOptions::default()).await?;
    let both = client(&connection(vec![server.url(), second.url()]))?;
    common::until_writable(&both).await?;
    assert_eq!(both.instances(1, &web).await?, []);
    assert_eq!(both.instances(0, &web).await.unwrap_err().kind, RegistryErrorKind::Unavailable);
    write(&both, Change::Register(web.clone(), instance("2", "10.0.0.8"))).await?;
    assert_eq!(both.instances(1, &web).await?.len(), 1);
    // A new server is empty.
    server.process.restart_empty().await?;
    common::until_writable(&consul).await?;
    assert_eq!(consul.instances(0, &web).await?, []);
    Ok(())
}

#[tokio::test]
async fn a_server_that_does_not_answer_leaves_the_result_open() -> Result<()> {
    let (server, _) = started().await?;
    let short = Connection { timeout: Duration::from_millis(300), ..connection(vec![server.url()]) };
    let consul = client(&short)?;
    let web = service("web");
    assert_eq!(consul.instances(0, &web).await?, []);
    server.process.pause()?;
    let change = Change::Register(web.clone(), instance("1", "10.0.0.7"));
    let error = write(&consul, change).await.unwrap_err();
    assert_eq!(error.kind, RegistryErrorKind::Unknown, "{error}");
    assert!(error.reason.contains("no response within 0.3 s"), "{error}");
    server.process.resume()?;
    Ok(())
}

#[tokio::test]
async fn tokens_and_certificates_are_checked() -> Result<()> {
    let token = "8c1c1d0a-7d3c-4e0e-9d7a-6d3a1c1f5a11";
    let certificates = TestCertificates::new()?;
    let tls = TlsOptions {
        authorities: Some(certificates.authority.clone()),
        identity: Some((certificates.certificate.clone(), certificates.key.clone().into())),
    };
    let options = ConsulServerOptions { token: Some(token.to_owned()), tls: Some(certificates) };
    let server = ConsulServer::start(options).await?;
    let with = |token: &str, tls: Option<TlsOptions>| {
        let credentials = Credentials::Token(token.to_owned().into());
        client(&Connection { credentials, tls, ..connection(vec![server.url()]) })
    };
    let consul = with(token, Some(tls.clone()))?;
    common::until_writable(&consul).await?;
    let web = service("web");
    write(&consul, Change::Register(web.clone(), instance("1", "10.0.0.7"))).await?;
    assert_eq!(consul.instances(0, &web).await?.len(), 1);

    let wrong = with("5d0f7c1e-0000-4e0e-9d7a-6d3a1c1f5a11", Some(tls.clone()))?;
    let error = write(&wrong, Change::Register(web.clone(), instance("2", "10.0.0.8"))).await.unwrap_err();
    assert_eq!(error.kind, RegistryErrorKind::Denied, "{error}");
    assert!(!error.to_string().contains("5d0f7c1e") && !format!("{wrong:?}").contains("5d0f7c1e"), "{error}");

    let without_certificate = with(token, Some(TlsOptions { identity: None, ..tls }))?;
    assert!(without_certificate.instances(0, &web).await.is_err());
    let other_authority =
        TlsOptions { authorities: Some(TestCertificates::new()?.authority), identity: None };
    let error = with(token, Some(other_authority))?.instances(0, &web).await.unwrap_err();
    assert!(error.reason.contains("UnknownIssuer") || error.reason.contains("certificate"), "{error}");
    Ok(())
}

#[tokio::test]
async fn changes_of_the_node_are_reported() -> Result<()> {
    let (server, consul) = started().await?;
    let web = service("web");
    write(&consul, Change::Register(web.clone(), instance("1", "10.0.0.7"))).await?;
    consul.changed(0, &[]).await?;
    let edit = async {
        let critical = serde_json::json!({
            "Node": NODE, "SkipNodeUpdate": true,
            "Check": {"CheckID": "podward:web-1", "Name": "Podward", "Status": "critical", "ServiceID": "web-1"},
        });
        http::put(&format!("{}/v1/catalog/register", server.url()), &critical).await
    };
    let changed = async { tokio::time::timeout(Duration::from_secs(120), consul.changed(0, &[])).await };
    let (changed, edited) = tokio::join!(changed, edit);
    edited?;
    changed.context("no change was reported")??;
    assert!(!common::only(consul.instances(0, &web).await?)?.in_service);
    Ok(())
}

/// What a token may not read is left out of the answers, and not absent.
#[tokio::test]
async fn an_answer_that_lacks_what_the_token_may_not_read_is_an_error() -> Result<()> {
    let management = "8c1c1d0a-7d3c-4e0e-9d7a-6d3a1c1f5a11";
    let options = ConsulServerOptions { token: Some(management.to_owned()), tls: None };
    let server = ConsulServer::start(options).await?;
    let with = |token: &str| {
        let credentials = Credentials::Token(token.to_owned().into());
        client(&Connection { credentials, ..connection(vec![server.url()]) })
    };
    let consul = with(management)?;
    common::until_writable(&consul).await?;
    let web = service("web");
    for name in ["web", "other"] {
        let changed = Change::Register(service(name), instance(name, "10.0.0.7"));
        write(&consul, changed).await?;
    }
    let limited = async |name: &str, rules: &str| {
        let policy = serde_json::json!({"Name": name, "Rules": rules});
        http::put(&format!("{}/v1/acl/policy?token={management}", server.url()), &policy).await?;
        let token = serde_json::json!({"Policies": [{"Name": name}]});
        let made = http::put(&format!("{}/v1/acl/token?token={management}", server.url()), &token).await?;
        let made: serde_json::Value = serde_json::from_str(&made)?;
        with(made["SecretID"].as_str().context("no token")?)
    };
    let blind = limited("blind", r#"service "web" { policy = "write" }"#).await?;
    let rules = format!(r#"service "web" {{ policy = "write" }} node "{NODE}" {{ policy = "write" }}"#);
    let of_web = limited("web", &rules).await?;
    assert_eq!(of_web.instances(0, &web).await?.len(), 1);
    for (error, right) in [
        (common::refused(blind.instances(0, &web).await)?, "node:read"),
        (common::refused(of_web.services(0, "c1").await)?, "service:read"),
    ] {
        assert_eq!(error.kind, RegistryErrorKind::Denied, "{error}");
        assert!(error.reason.contains(right), "{error}");
    }
    Ok(())
}

/// The same, from a server that answers always so.
#[tokio::test]
async fn a_filtered_answer_is_an_error() -> Result<()> {
    let answers = [
        "HTTP/1.1 200 OK\r\nx-consul-results-filtered-by-acls: true\r\ncontent-length: 2\r\n\r\n[]",
        "HTTP/1.1 200 OK\r\nx-consul-results-filtered-by-acls: true\r\ncontent-length: 15\r\n\r\n{\"Services\":[]}",
    ];
    let of = async |answer| client(&connection(vec![http::serve_always(answer).await?]));
    let (web, node) = (of(answers[0]).await?, of(answers[1]).await?);
    let errors = [
        common::refused(web.instances(0, &service("web")).await)?,
        common::refused(node.services(0, "c1").await)?,
    ];
    for error in errors {
        assert_eq!(error.kind, RegistryErrorKind::Denied, "{error}");
        assert!(error.reason.contains("give the token "), "{error}");
    }
    Ok(())
}

/// Not what a Consul answers.
#[tokio::test]
async fn answers_of_something_else_are_errors() -> Result<()> {
    let web = service("web");
    for (body, kind) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nnull", RegistryErrorKind::Invalid),
        ("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n[{\"a\":1}]", RegistryErrorKind::Invalid),
        ("HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n[]", RegistryErrorKind::Unknown),
        ("HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n", RegistryErrorKind::Unavailable),
        (
            "HTTP/1.1 302 No\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",
            RegistryErrorKind::Rejected,
        ),
        ("HTTP/1.1 404 No\r\ncontent-length: 0\r\n\r\n", RegistryErrorKind::Rejected),
    ] {
        let consul = client(&connection(vec![http::serve_always(body).await?]))?;
        let error = consul.instances(0, &web).await.unwrap_err();
        assert_eq!(error.kind, kind, "{body}: {error}");
    }
    Ok(())
}
