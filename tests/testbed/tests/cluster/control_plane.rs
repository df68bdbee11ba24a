use std::{net::SocketAddr, os::unix::process::ExitStatusExt, process::Output};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{Api, api::PostParams};
use libtest_mimic::Trial;
use podward_testbed::{Command, Progress, Shape, TestCluster, TestClusterError, Tools};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::harness::test;
use crate::support::{builder, chain, eventually, start};

pub(crate) fn tests() -> Vec<Trial> {
    vec![
        test("control_plane::two_control_planes_serve_side_by_side", two_control_planes_serve_side_by_side),
        test("control_plane::processes_run_inside_and_are_reached", processes_run_inside_and_are_reached),
        test(
            "control_plane::a_component_that_fails_is_named_with_the_end_of_its_log",
            a_component_that_fails_is_named_with_the_end_of_its_log,
        ),
    ]
}

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
}

fn kubectl(cluster: &TestCluster, args: &[&str]) -> Output {
    let kubectl = cluster.tools().bin("kubectl");
    std::process::Command::new(kubectl)
        .arg("--kubeconfig")
        .arg(cluster.kubeconfig())
        .args(args)
        .output()
        .unwrap()
}

async fn two_control_planes_serve_side_by_side() {
    let (one, other) = tokio::join!(
        start(builder(Shape::ControlPlane, "side").audit_log(true)),
        start(builder(Shape::ControlPlane, "side"))
    );
    assert_ne!(one.id(), other.id());
    let maps = |cluster: &TestCluster| Api::<ConfigMap>::default_namespaced(cluster.client());
    maps(&one).create(&PostParams::default(), &config_map("only-here")).await.unwrap();
    assert!(maps(&other).get_opt("only-here").await.unwrap().is_none());

    // The controllers work: a deleted namespace is removed.
    let spaces: Api<Namespace> = Api::all(one.client());
    let space = serde_json::from_value(json!({"metadata": {"name": "short"}})).unwrap();
    spaces.create(&PostParams::default(), &space).await.unwrap();
    spaces.delete("short", &Default::default()).await.unwrap();
    eventually("the namespace goes", async || spaces.get_opt("short").await.unwrap(), Option::is_none).await;

    // From the host with kubectl. The audit log contains the user of the write.
    let output = kubectl(&one, &["get", "configmap", "only-here", "--output=name"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "configmap/only-here\n", "{output:?}");
    let log = one.audit_log().unwrap();
    let written = async || std::fs::read_to_string(&log).unwrap();
    eventually("the write is logged", written, |log| log.contains(r#""name":"only-here""#)).await;
    assert!(other.audit_log().is_none());

    one.down().await.unwrap();
    assert!(!one.dir().exists() && !one.logs_dir().exists());
    // The end of one cluster does not affect the other.
    assert!(maps(&other).get_opt("only-here").await.unwrap().is_none());
    other.down().await.unwrap();
}

async fn processes_run_inside_and_are_reached() {
    let cluster = start(builder(Shape::ControlPlane, "inside")).await;

    // As another user, with a client certificate of the cluster's CA.
    let kubeconfig = cluster.client_kubeconfig("jane", &["readers", "writers"]).unwrap();
    let whoami = Command::new("whoami", "kubectl")
        .args(["auth", "whoami", "--output=json", "--kubeconfig"])
        .arg(kubeconfig.display().to_string());
    let whoami = cluster.spawn(whoami).await.unwrap();
    assert!(whoami.wait().await.unwrap().success(), "{}", whoami.log_tail(10));
    let said: serde_json::Value = serde_json::from_str(&whoami.log_tail(100)).unwrap();
    let user = &said["status"]["userInfo"];
    assert_eq!(user["username"], "jane");
    assert_eq!(user["groups"], json!(["readers", "writers", "system:authenticated"]));

    // A connection inside, and a port of the host that is forwarded there: etcd only listens on loopback inside.
    let etcd: SocketAddr = "127.0.0.1:2379".parse().unwrap();
    let forwarded = cluster.forward(etcd).await.unwrap();
    assert!(forwarded.ip().is_loopback());
    let request = b"GET /version HTTP/1.0\r\n\r\n";
    let (mut inner, mut outer) = (String::new(), String::new());
    let mut stream = cluster.connect(etcd).await.unwrap();
    stream.write_all(request).await.unwrap();
    stream.read_to_string(&mut inner).await.unwrap();
    let mut stream = tokio::net::TcpStream::connect(forwarded).await.unwrap();
    stream.write_all(request).await.unwrap();
    stream.read_to_string(&mut outer).await.unwrap();
    for answer in [inner, outer] {
        assert!(answer.contains("etcdserver"), "{answer:?}");
    }
    assert!(matches!(
        cluster.connect("10.200.0.1:9".parse().unwrap()).await,
        Err(TestClusterError::Refused { .. })
    ));

    // Exit codes and signals are distinguished.
    let sleep = cluster.spawn(Command::new("sleep", "sleep").arg("1000")).await.unwrap();
    assert!(sleep.is_running());
    assert_eq!(sleep.stop().await.unwrap().signal, Some(15));
    assert!(!sleep.is_running());
    assert_eq!(sleep.stop().await.unwrap().signal, Some(15), "stopping twice is no error");
    let script = Command::new("script", "sh")
        .args(["-c", "trap 'exit 7' TERM; echo up; while :; do sleep 0.05; done"]);
    let script = cluster.spawn(script).await.unwrap();
    eventually("the trap is set", async || script.log_tail(1), |line| line == "up").await;
    assert_eq!(script.stop().await.unwrap().code, Some(7));
    let missing = cluster.spawn(Command::new("missing", "/no/such/program")).await.unwrap_err();
    assert!(chain(&missing).contains("/no/such/program"), "{missing}");

    // Outbound connections inside use other ports than servers of the host that bind port 0. Such a server may be exposed
    // inside at the same port.
    let range = "/proc/sys/net/ipv4/ip_local_port_range";
    let ports =
        |range: &str| -> Vec<u16> { range.split_whitespace().map(|port| port.parse().unwrap()).collect() };
    let host = ports(&std::fs::read_to_string(range).unwrap());
    let inside = cluster.exec_command(["cat", range]).output().unwrap();
    let inside = ports(&String::from_utf8(inside.stdout).unwrap());
    assert!(inside[0] > host[1], "{inside:?} inside, {host:?} outside");

    // Any command in the cluster's network. Its exit code is passed on.
    let version = cluster.exec_command(["kubectl", "get", "--raw=/readyz"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&version.stdout), "ok", "{version:?}");
    let status = cluster.exec_command(["sh", "-c", "exit 42"]).status().unwrap();
    assert_eq!((status.code(), status.signal()), (Some(42), None));
    cluster.down().await.unwrap();
}

async fn a_component_that_fails_is_named_with_the_end_of_its_log() {
    let good = Tools::ensure(Shape::ControlPlane.parts(), &Progress::stderr()).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let bin = dir.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    for name in ["etcd", "kube-controller-manager", "kube-scheduler"] {
        std::os::unix::fs::symlink(good.bin(name), bin.join(name)).unwrap();
    }
    // A program that exits at once with a message and a code.
    let broken = bin.join("kube-apiserver");
    std::fs::write(&broken, "#!/bin/sh\necho the certificate is upside down >&2\nexit 3\n").unwrap();
    std::fs::set_permissions(&broken, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();

    let tools = Tools::at(dir.path().to_owned());
    let started = builder(Shape::ControlPlane, "broken").tools(tools).start().await;
    let Err(error @ TestClusterError::Died { .. }) = started else { panic!("started, or failed otherwise") };
    let text = error.to_string();
    assert!(text.contains("kube-apiserver ended with exit code 3"), "{text}");
    assert!(text.contains("the certificate is upside down"), "{text}");
    let TestClusterError::Died { log, .. } = error else { unreachable!() };
    assert!(log.is_file(), "the log is kept: {}", log.display());
    let logs = log.parent().unwrap();
    assert!(logs.join("etcd.log").is_file(), "and those of the others too");
    std::fs::remove_dir_all(logs).unwrap();
}
