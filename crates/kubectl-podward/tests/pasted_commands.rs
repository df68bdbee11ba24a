//! The program adds the options of its command line to the commands in its messages.
#![allow(missing_docs, clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::thread;

use serde_json::{Value, json};

/// Answers the request of a connection: with the pod shop/web, or that there is no such object.
fn serve(stream: &TcpStream) {
    let mut reader = BufReader::new(stream);
    let mut path = String::new();
    reader.read_line(&mut path).unwrap();
    let mut length = 0;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).unwrap();
        let header = header.trim().to_lowercase();
        if let Some(bytes) = header.strip_prefix("content-length:") {
            length = bytes.trim().parse().unwrap();
        }
        if header.is_empty() {
            break;
        }
    }
    reader.read_exact(&mut vec![0; length]).unwrap();
    let metadata = json!({
        "namespace": "shop", "name": "web", "uid": "u", "resourceVersion": "1",
        "labels": {"kusionstack.io/control": "true"},
    });
    let (status, body): (&str, Value) = match path.contains("/pods/web") {
        true => ("200 OK", json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata})),
        false => (
            "404 Not Found",
            json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404}),
        ),
    };
    let body = body.to_string();
    let head = format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\nConnection: close\r\n");
    let mut stream = stream;
    write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len()).unwrap();
}

/// Returns what the program prints.
fn output(line: &str) -> String {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    thread::spawn(move || server.incoming().for_each(|stream| serve(&stream.unwrap())));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "other",
        "clusters": [{"name": "c", "cluster": {"server": format!("http://{address}")}}],
        "contexts": [{"name": "prod", "context": {"cluster": "c", "user": "u", "namespace": "shop"}}],
        "users": [{"name": "u", "user": {}}],
    });
    std::fs::write(&file, config.to_string()).unwrap();
    let program = env!("CARGO_BIN_EXE_kubectl-podward");
    let ran = Command::new(program).args(line.split(' ')).env("KUBECONFIG", &file).output().unwrap();
    String::from_utf8(ran.stdout).unwrap() + &String::from_utf8(ran.stderr).unwrap()
}

#[test]
fn commands_to_be_pasted_have_the_options_that_were_given() {
    let shown = output("--context=prod --as=jane break-glass web --reason x");
    let command = "kubectl --context=prod --as=jane delete pod web -n shop\n";
    assert!(shown.ends_with(command), "{shown}");
    let shown = output("why gone --context prod");
    assert!(shown.contains("kubectl podward --context=prod why deploy/NAME -n shop"), "{shown}");
}
