//! Loads for servers that lose requests on purpose.

mod discovery;

use clap::Parser;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use super::*;

/// The behaviour of a server for each connection: it answers this number of requests, and closes when it has read the
/// next one.
async fn answer(mut stream: TcpStream, good: usize) {
    let mut buffer = [0; 1024];
    for _ in 0..good {
        if stream.read(&mut buffer).await.unwrap_or_default() == 0 {
            return;
        }
        let sent = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
        if sent.is_err() {
            return;
        }
    }
    let _ = stream.read(&mut buffer).await;
}

/// Starts a server whose connections answer `good` requests each, and returns the report of a load of about
/// `requests` requests.
async fn load_on(good: usize, connections: Connections, requests: u64) -> LoadReport {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = listener.local_addr().unwrap().to_string();
    let server = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(answer(stream, good));
        }
    });
    let report = load(&target, connections, requests).await;
    server.abort();
    report
}

async fn load(target: &str, connections: Connections, requests: u64) -> LoadReport {
    let args = ["x", "--target", target, "--rate", "1000", "--pool", "3", "--control", "127.0.0.1:0"];
    let load = RunningLoad::new(&ClientArgs::parse_from(args), connections).unwrap();
    let (stop, stopped) = watch::channel(false);
    let running = tokio::spawn(load.clone().run(stopped));
    while load.report().requests < requests {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    stop.send(true).unwrap();
    running.await.unwrap();
    load.report()
}

#[tokio::test]
async fn each_request_has_a_connection_of_its_own() {
    let report = load_on(1, Connections::New, 100).await;
    assert_eq!((report.failed, report.sent_again), (0, 0), "{report:?}");
    assert_eq!(report.opened, report.requests);
    assert!(report.longest_pause_ms < 5000.0, "{report:?}");
}

#[tokio::test]
async fn connections_are_kept_alive() {
    let report = load_on(usize::MAX, Connections::KeepAlive, 100).await;
    assert_eq!((report.failed, report.sent_again), (0, 0), "{report:?}");
    assert!(report.opened < report.requests, "{report:?}");
}

#[tokio::test]
async fn a_request_is_sent_again_when_a_used_connection_ends() {
    let report = load_on(3, Connections::KeepAlive, 100).await;
    assert_eq!(report.failed, 0, "{report:?}");
    assert!(report.sent_again > 0, "{report:?}");
}

#[tokio::test]
async fn a_fresh_connection_that_ends_is_a_failure() {
    for connections in [Connections::New, Connections::KeepAlive] {
        let report = load_on(0, connections, 50).await;
        assert_eq!(report.failed, report.requests, "{report:?}");
        assert_eq!(report.reasons.keys().collect::<Vec<_>>(), ["closed before the answer"]);
        assert!(report.longest_pause_ms >= report.seconds * 1e3 - 1.0, "{report:?}");
    }
}

#[tokio::test]
async fn a_refused_connection_is_a_failure() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let report = load(&free.to_string(), Connections::New, 20).await;
    assert_eq!(report.reasons.keys().collect::<Vec<_>>(), ["connect: connection refused"]);
}

#[tokio::test]
async fn the_load_waits_for_a_first_answer() {
    let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let target = address.to_string();
    let args = ["x", "--target", &target, "--await-first", "60", "--control", "127.0.0.1:0"];
    let load = RunningLoad::new(&ClientArgs::parse_from(args), Connections::New).unwrap();
    let (stop, stopped) = watch::channel(false);
    let running = tokio::spawn(load.clone().run(stopped));
    tokio::time::sleep(Duration::from_millis(200)).await;
    let listener = TcpListener::bind(address).await.unwrap();
    let server = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream, 1));
        }
    });
    while load.report().requests < 10 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    stop.send(true).unwrap();
    running.await.unwrap();
    server.abort();
    assert_eq!(load.report().failed, 0, "{:?}", load.report());
}
