//! Real sockets in a network namespace of a thread.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use nix::sched::{CloneFlags, unshare};

use super::*;

const UID: &str = "0a1b2c3d-0000-4000-8000-0123456789ab";
const POD: &str = "10.244.0.7";
const CLIENT: &str = "10.244.0.8";

/// A folder like `/proc` with one process: this thread, as a process of the pod.
fn proc_of_this_thread(folder: &Path, cgroup: &str) {
    let thread = fs::canonicalize("/proc/thread-self").unwrap();
    for name in ["self", "77"] {
        fs::create_dir_all(folder.join(name).join("ns")).unwrap();
    }
    // Namespaces are compared and opened through these links.
    symlink("/proc/self/ns/net", folder.join("self/ns/net")).unwrap();
    symlink(thread.join("ns/net"), folder.join("77/ns/net")).unwrap();
    fs::write(folder.join("77/cgroup"), cgroup).unwrap();
    fs::create_dir_all(folder.join("not-a-process")).unwrap();
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("node-agent-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn uid() -> PodUid {
    PodUid::parse(UID).unwrap()
}

fn ip(args: &[&str]) {
    let status = Command::new("ip").args(args).status().unwrap();
    assert!(status.success(), "ip {args:?}");
}

#[test]
fn connections_of_a_pod_are_read_in_its_network_namespace() {
    let folder = folder("connections");
    let in_namespace = std::thread::spawn({
        let folder = folder.clone();
        move || {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            ip(&["link", "set", "lo", "up"]);
            // Both addresses are local, but different: the connection looks like one from another pod.
            for address in [POD, CLIENT] {
                ip(&["address", "add", &format!("{address}/32"), "dev", "lo"]);
            }
            proc_of_this_thread(&folder, &format!("0::/kubepods/pod{UID}/container\n"));
            let pod = PodSockets::find(&folder, uid()).unwrap();
            assert!(
                matches!(pod.connections(&BTreeSet::new()), Err(PodSocketsError::NoPort(_))),
                "nobody listens"
            );
            let _helper = TcpListener::bind(("127.0.0.1", 15_000)).unwrap();
            assert!(
                matches!(pod.connections(&BTreeSet::new()), Err(PodSocketsError::NoPort(_))),
                "not for others"
            );

            let listener = TcpListener::bind((POD, 8080)).unwrap();
            let found = pod.connections(&BTreeSet::new()).unwrap();
            assert_eq!(
                (found.open, found.ports.contains(&8080), found.has_other_protocols),
                (0, true, false)
            );

            let mut client = connect_from_client(&listener);
            let (mut server, _) = listener.accept().unwrap();
            client.write_all(b"GET").unwrap();
            let unread = pod.connections(&BTreeSet::new()).unwrap();
            assert_eq!((unread.open, unread.silent_for), (1, Some(Duration::ZERO)), "data waits to be read");
            let mut buffer = [0; 3];
            server.read_exact(&mut buffer).unwrap();
            // The kernel counts the time since the last byte.
            let silent = loop {
                let found = pod.connections(&BTreeSet::new()).unwrap();
                if found.is_quiet(Duration::from_millis(20)) {
                    break found;
                }
                std::thread::yield_now();
            };
            assert_eq!(silent.open, 1);

            // The client sends no more, and may wait for the answer.
            client.shutdown(std::net::Shutdown::Write).unwrap();
            assert_eq!(pod.connections(&BTreeSet::new()).unwrap().open, 1);
            // Also when the pod accepts no more connections.
            let other = TcpListener::bind((POD, 9090)).unwrap();
            drop(listener);
            assert_eq!(pod.connections(&BTreeSet::new()).unwrap().open, 1);
            // And when it listens nowhere.
            drop(other);
            assert_eq!(pod.connections(&BTreeSet::new()).unwrap().open, 1);
            let _other = TcpListener::bind((POD, 9090)).unwrap();
            drop((client, server));
            assert_eq!(pod.connections(&BTreeSet::new()).unwrap().open, 0);
            let _local_udp = std::net::UdpSocket::bind(("127.0.0.1", 53)).unwrap();
            assert!(!pod.connections(&BTreeSet::new()).unwrap().has_other_protocols);
            let endpoints = folder.join("77/net/sctp/eps");
            fs::create_dir_all(endpoints.parent().unwrap()).unwrap();
            let columns = " ENDPT     SOCK   STY SST HBKT LPORT   UID INODE LADDRS\n";
            for (text, has_sctp) in
                [(columns.to_owned(), false), (format!("{columns}00 00 2 10 29 80 0 7 ::\n"), true)]
            {
                fs::write(&endpoints, text).unwrap();
                assert_eq!(pod.connections(&BTreeSet::new()).unwrap().has_other_protocols, has_sctp);
            }
            fs::remove_file(endpoints).unwrap();
            let _udp = std::net::UdpSocket::bind((POD, 53)).unwrap();
            assert!(pod.connections(&BTreeSet::new()).unwrap().has_other_protocols);
        }
    });
    in_namespace.join().unwrap();
    fs::remove_dir_all(folder).unwrap();
}

/// Connects to `listener` from [`CLIENT`], from another thread of this namespace.
fn connect_from_client(listener: &TcpListener) -> TcpStream {
    let address = listener.local_addr().unwrap();
    let (sender, receiver) = mpsc::channel();
    // A child thread starts in the namespace of its parent.
    std::thread::spawn(move || {
        use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, bind, connect, socket};
        use std::os::fd::AsRawFd as _;
        let made = socket(AddressFamily::Inet, SockType::Stream, SockFlag::empty(), None).unwrap();
        let from: SockaddrIn = format!("{CLIENT}:0").parse().unwrap();
        bind(made.as_raw_fd(), &from).unwrap();
        let to: SockaddrIn = address.to_string().parse().unwrap();
        connect(made.as_raw_fd(), &to).unwrap();
        sender.send(TcpStream::from(made)).unwrap();
    });
    receiver.recv().unwrap()
}

#[test]
fn a_pod_that_is_not_here_or_has_no_network_of_its_own_has_no_evidence() {
    let folder = folder("absent");
    proc_of_this_thread(&folder, "0::/kubepods/podffffffff-0000-4000-8000-0123456789ab\n");
    assert!(matches!(PodSockets::find(&folder, uid()), Err(PodSocketsError::NotFound(_))));
    fs::write(folder.join("77/cgroup"), format!("0::/kubepods/pod{UID}\n")).unwrap();
    assert!(matches!(PodSockets::find(&folder, uid()), Err(PodSocketsError::HostNetwork(_))));
    fs::remove_dir_all(folder).unwrap();
}

/// A group that cannot be read may be that of the pod.
#[test]
fn a_process_that_cannot_be_read_is_an_error() {
    let folder = folder("unreadable");
    let in_namespace = std::thread::spawn({
        let folder = folder.clone();
        move || {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            proc_of_this_thread(&folder, &format!("0::/kubepods/pod{UID}/container\n"));
            // Reading a folder fails, and not because the process has ended.
            fs::create_dir_all(folder.join("78/cgroup")).unwrap();
            let found = PodSockets::find(&folder, uid());
            assert!(matches!(found, Err(PodSocketsError::Io { .. })), "the process 78 was skipped");
        }
    });
    in_namespace.join().unwrap();
    fs::remove_dir_all(folder).unwrap();
}

/// The client has closed, and the pod never reads that: nothing waits to be read but the end.
#[test]
fn a_leaked_half_closed_connection_becomes_silent() {
    let folder = folder("leaked");
    let in_namespace = std::thread::spawn({
        let folder = folder.clone();
        move || {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            ip(&["link", "set", "lo", "up"]);
            for address in [POD, CLIENT] {
                ip(&["address", "add", &format!("{address}/32"), "dev", "lo"]);
            }
            proc_of_this_thread(&folder, &format!("0::/kubepods/pod{UID}/container\n"));
            let pod = PodSockets::find(&folder, uid()).unwrap();
            let listener = TcpListener::bind((POD, 8080)).unwrap();
            let client = connect_from_client(&listener);
            let (_server, _) = listener.accept().unwrap();
            drop(client);
            // The kernel counts the time since the last byte. The limit only ends a test that would never end.
            let limit = std::time::Instant::now() + Duration::from_secs(60);
            loop {
                let found = pod.connections(&BTreeSet::new()).unwrap();
                assert_eq!(found.open, 1, "a client that sends no more may wait for an answer");
                if found.is_quiet(Duration::from_millis(20)) {
                    break;
                }
                assert!(std::time::Instant::now() < limit, "{found:?}");
                std::thread::yield_now();
            }
            // Data that waits to be read counts as before.
            let mut client = connect_from_client(&listener);
            let (_unread, _) = listener.accept().unwrap();
            client.write_all(b"G").unwrap();
            drop(client);
            let found = pod.connections(&BTreeSet::new()).unwrap();
            assert_eq!((found.open, found.silent_for), (2, Some(Duration::ZERO)));
        }
    });
    in_namespace.join().unwrap();
    fs::remove_dir_all(folder).unwrap();
}
