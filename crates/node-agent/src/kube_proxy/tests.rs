//! Against an HTTP server that sends fixed bytes.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::thread::JoinHandle;

use tonic::Code;

use super::*;

/// A server that answers one request with `response`. The thread returns the first line of the request.
fn server(response: Vec<u8>) -> (KubeProxy, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let thread = std::thread::spawn(move || {
        let (mut connection, _) = listener.accept().unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            connection.read_exact(&mut byte).unwrap();
            request.extend(byte);
        }
        // The client may close before it has read all.
        let _ = connection.write_all(&response);
        String::from_utf8(request).unwrap().lines().next().unwrap().to_owned()
    });
    (KubeProxy::new(address), thread)
}

fn page_of(size: usize) -> Vec<u8> {
    let mut response = format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n").into_bytes();
    response.resize(response.len() + size, b'x');
    response
}

#[tokio::test]
async fn a_page_is_returned_with_its_date_and_status() {
    const DATE: &str = "Mon, 02 Nov 2026 10:00:00 GMT";
    for (page, path) in [(KubeProxyPage::Metrics, "/metrics"), (KubeProxyPage::Configz, "/configz")] {
        let response = format!("HTTP/1.1 404 Not Found\r\nDate: {DATE}\r\nContent-Length: 4\r\n\r\ntext");
        let (kube_proxy, request) = server(response.into_bytes());
        let read = kube_proxy.read(page).await.unwrap();
        assert_eq!((read.status, read.date.as_str(), read.body.as_slice()), (404, DATE, &b"text"[..]));
        assert_eq!(request.join().unwrap(), format!("GET {path} HTTP/1.1"));
    }
}

#[tokio::test]
async fn a_page_that_is_too_long_or_incomplete_is_an_error() {
    let (kube_proxy, _server) = server(page_of(MAX_PAGE));
    let read = kube_proxy.read(KubeProxyPage::Metrics).await.unwrap();
    assert_eq!((read.body.len(), read.date.as_str()), (MAX_PAGE, ""));

    let mut incomplete = page_of(10);
    incomplete.pop();
    for response in [page_of(MAX_PAGE + 1), incomplete, b"nonsense\r\n\r\n".to_vec()] {
        let (kube_proxy, _server) = server(response);
        let status = kube_proxy.read(KubeProxyPage::Metrics).await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable, "{status}");
    }
}

#[tokio::test]
async fn a_kube_proxy_that_does_not_listen_is_named() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let status = KubeProxy::new(free).read(KubeProxyPage::Metrics).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().contains(&free.to_string()), "{status}");
}
