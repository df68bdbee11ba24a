//! Reads the sockets of a network namespace from the kernel (`man 7 sock_diag`).

use std::fs::{self, File};
use std::io;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkBuffer, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_sock_diag::SockDiagMessage;
use netlink_packet_sock_diag::constants::{
    AF_INET, AF_INET6, IPPROTO_TCP, IPPROTO_UDP, TCP_CLOSE, TCP_CLOSE_WAIT, TCP_CLOSING, TCP_ESTABLISHED,
    TCP_FIN_WAIT1, TCP_FIN_WAIT2, TCP_LAST_ACK, TCP_LISTEN, TCP_SYN_RECV, TCP_TIME_WAIT,
};
use netlink_packet_sock_diag::inet::nlas::Nla;
use netlink_packet_sock_diag::inet::{ExtensionFlags, InetRequest, InetResponse, SocketId, StateFlags};
use netlink_sys::protocols::NETLINK_SOCK_DIAG;
use netlink_sys::{Socket, SocketAddr as NetlinkAddress};
use nix::sched::{CloneFlags, setns};

use crate::connections::{LastData, Sockets, TcpSocket, TcpState};

/// The size of a received datagram. The kernel sends at most 32 KiB at a time.
const BUFFER: usize = 64 << 10;
/// The maximum number of sockets that are read. A pod with more has no evidence.
const MAX_SOCKETS: usize = 200_000;
/// The time to wait for the kernel, in seconds.
const TIMEOUT_SECONDS: i64 = 1;

/// The setting with the local ports that the kernel chooses for outbound connections. Each network namespace has its own.
const OUTBOUND_PORTS: &str = "/proc/sys/net/ipv4/ip_local_port_range";

/// A socket that reads the sockets of one network namespace.
pub(crate) struct SockDiag {
    socket: Socket,
    outbound_ports: RangeInclusive<u16>,
}

impl SockDiag {
    /// Opens the network namespace at `namespace`, such as `/proc/1/ns/net`.
    ///
    /// # Errors
    /// Fails if it does not exist, or the process lacks the capabilities `SYS_PTRACE` and `SYS_ADMIN`.
    pub(crate) fn open(namespace: &Path) -> io::Result<Self> {
        let file = File::open(namespace)?;
        // A netlink socket belongs to the namespace of the thread that creates it. Only this thread enters the namespace.
        let opened =
            std::thread::Builder::new().name("netns".to_owned()).spawn(move || -> io::Result<Self> {
                setns(file, CloneFlags::CLONE_NEWNET)?;
                let mut socket = Socket::new(NETLINK_SOCK_DIAG)?;
                socket.bind_auto()?;
                socket.connect(&NetlinkAddress::new(0, 0))?;
                // This shows the settings of the namespace of the thread that reads it.
                let outbound_ports = port_range(&fs::read_to_string(OUTBOUND_PORTS)?)?;
                Ok(Self { socket, outbound_ports })
            })?;
        let opened = opened.join().map_err(|_| io::Error::other("the thread panicked"))??;
        nix::sys::socket::setsockopt(
            &opened.socket,
            nix::sys::socket::sockopt::ReceiveTimeout,
            &nix::sys::time::TimeVal::new(TIMEOUT_SECONDS, 0),
        )?;
        Ok(opened)
    }

    /// Reads all sockets that can receive requests.
    ///
    /// # Errors
    /// Fails if the kernel does not answer, or answers with an error or an invalid message.
    pub(crate) fn sockets(&self) -> io::Result<Sockets> {
        let mut found = Sockets {
            tcp: Vec::new(),
            has_other_protocols: false,
            outbound_ports: self.outbound_ports.clone(),
        };
        for family in [AF_INET, AF_INET6] {
            let all = StateFlags::all();
            self.dump(family, IPPROTO_TCP, ExtensionFlags::INFO, all, |answer| {
                found.tcp.extend(tcp_socket(answer));
                found.tcp.len() <= MAX_SOCKETS
            })?;
            // A UDP socket without a peer has the state CLOSE.
            self.dump(family, IPPROTO_UDP, ExtensionFlags::empty(), StateFlags::CLOSE, |answer| {
                let local = answer.header.socket_id.source_address.to_canonical();
                found.has_other_protocols |= !local.is_loopback();
                true
            })?;
        }
        Ok(found)
    }

    fn dump(
        &self,
        family: u8,
        protocol: u8,
        extensions: ExtensionFlags,
        states: StateFlags,
        mut each: impl FnMut(&InetResponse) -> bool,
    ) -> io::Result<()> {
        self.request(InetRequest {
            family,
            protocol,
            extensions,
            states,
            socket_id: if family == AF_INET { SocketId::new_v4() } else { SocketId::new_v6() },
        })?;
        let mut buffer = vec![0; BUFFER];
        loop {
            let size = self.socket.recv(&mut &mut buffer[..], 0)?;
            let mut rest = buffer.get(..size).unwrap_or_default();
            while !rest.is_empty() {
                let length = NetlinkBuffer::new_checked(&rest).map_err(invalid)?.length() as usize;
                let message = NetlinkMessage::<SockDiagMessage>::deserialize(rest).map_err(invalid)?;
                match message.payload {
                    NetlinkPayload::InnerMessage(SockDiagMessage::InetResponse(answer)) if !each(&answer) => {
                        return Err(io::Error::other(format!("there are more than {MAX_SOCKETS} sockets")));
                    }
                    NetlinkPayload::Done(done) if done.code < 0 => {
                        // The list is incomplete.
                        return Err(io::Error::from_raw_os_error(done.code.saturating_neg()));
                    }
                    NetlinkPayload::Done(_) => return Ok(()),
                    NetlinkPayload::Error(error) => return Err(error.to_io()),
                    NetlinkPayload::Overrun(_) => return Err(io::Error::other("the kernel dropped answers")),
                    _ => {}
                }
                // Messages are aligned to four bytes.
                rest = rest.get(length.max(1).next_multiple_of(4)..).unwrap_or_default();
            }
        }
    }

    fn request(&self, request: InetRequest) -> io::Result<()> {
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | NLM_F_DUMP;
        let mut message = NetlinkMessage::new(header, SockDiagMessage::InetRequest(request).into());
        message.finalize();
        let mut buffer = vec![0; message.buffer_len()];
        message.serialize(&mut buffer);
        self.socket.send(&buffer, 0).map(drop)
    }
}

fn invalid(error: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the kernel sent an invalid message: {error}"))
}

/// Reads the text of [`OUTBOUND_PORTS`], such as two numbers with a tab between them: the first port and the last.
fn port_range(text: &str) -> io::Result<RangeInclusive<u16>> {
    let mut ports = text.split_ascii_whitespace().map(str::parse::<u16>);
    match (ports.next(), ports.next(), ports.next()) {
        (Some(Ok(first)), Some(Ok(last)), None) => Ok(first..=last),
        _ => Err(invalid(format_args!("{OUTBOUND_PORTS}: {text:?}"))),
    }
}

/// Returns the socket in `answer`. `None` for an outbound connection that is being opened.
fn tcp_socket(answer: &InetResponse) -> Option<TcpSocket> {
    let header = &answer.header;
    let id = &header.socket_id;
    let state = match header.state {
        TCP_LISTEN => TcpState::Listening,
        // A connection that is half closed by the client may wait for an answer.
        TCP_ESTABLISHED | TCP_SYN_RECV | TCP_CLOSE_WAIT => TcpState::Open,
        TCP_FIN_WAIT1 | TCP_FIN_WAIT2 | TCP_CLOSING | TCP_LAST_ACK | TCP_TIME_WAIT | TCP_CLOSE => {
            TcpState::Closed
        }
        _ => return None,
    };
    let data = answer.nlas.iter().find_map(|nla| match nla {
        Nla::TcpInfo(info) => Some(LastData {
            received: Duration::from_millis(info.last_data_recv.into()),
            sent: Duration::from_millis(info.last_data_sent.into()),
            received_bytes: info.bytes_received,
        }),
        _ => None,
    });
    Some(TcpSocket {
        local: SocketAddr::new(id.source_address, id.source_port),
        remote: SocketAddr::new(id.destination_address, id.destination_port),
        state,
        unread: unread(header.state, header.recv_queue),
        unacknowledged: header.send_queue,
        data,
    })
}

/// Returns the number of bytes that the pod has not read. Until it has read the end of the client's data, the kernel counts
/// the end as one more byte. A pod that never reads the end has no request there.
fn unread(state: u8, recv_queue: u32) -> u32 {
    match state {
        TCP_CLOSE_WAIT => recv_queue.saturating_sub(1),
        _ => recv_queue,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_the_data_is_no_data() {
        for (state, queue, bytes) in
            [(TCP_CLOSE_WAIT, 0, 0), (TCP_CLOSE_WAIT, 1, 0), (TCP_CLOSE_WAIT, 2, 1), (TCP_ESTABLISHED, 1, 1)]
        {
            assert_eq!(unread(state, queue), bytes, "state {state}, {queue} in the queue");
        }
    }

    #[test]
    fn the_ports_of_outbound_connections_are_parsed() {
        assert_eq!(port_range("32768\t60999\n").unwrap(), 32_768..=60_999);
        for bad in ["", "1", "1 2 3", "1 65536", "a b"] {
            assert!(port_range(bad).is_err(), "{bad:?}");
        }
    }
}
