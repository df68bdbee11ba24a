//! Listens on TCP ports.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use nix::errno::Errno;
use nix::sys::socket::{setsockopt, sockopt};
use tokio::net::{TcpListener, TcpSocket};

/// The number of connections that may wait to be accepted. The kernel has a maximum of its own (net.core.somaxconn).
const BACKLOG: u32 = 4096;

/// Listens on `address`; port 0 takes a free one. `[::]` stands for all addresses, IPv6 and IPv4, whatever
/// net.ipv6.bindv6only says. Where the kernel has no IPv6, it stands for all IPv4 addresses.
///
/// # Errors
///
/// When it can't listen on the address.
pub(crate) async fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    if address.ip() != Ipv6Addr::UNSPECIFIED {
        return TcpListener::bind(address).await;
    }
    match on_all_addresses(address) {
        Err(error) if has_no_ipv6(&error) => TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await,
        listening => listening,
    }
}

fn on_all_addresses(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v6()?;
    socket.set_reuseaddr(true)?;
    setsockopt(&socket, sockopt::Ipv6V6Only, &false)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

fn has_no_ipv6(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw);
    matches!(code, Some(Errno::EAFNOSUPPORT | Errno::EADDRNOTAVAIL))
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use clap::Parser;
    use tokio::net::TcpStream;

    use super::*;
    use crate::args::{ProcessArgs, TlsArgs};

    #[derive(Parser)]
    struct All {
        #[command(flatten)]
        process: ProcessArgs,
        #[command(flatten)]
        tls: TlsArgs,
    }

    /// Connects to the listener at `ip`, and returns the client's address as the server sees it.
    async fn client_of(listener: &TcpListener, ip: IpAddr) -> io::Result<IpAddr> {
        let port = listener.local_addr()?.port();
        let (client, accepted) = tokio::join!(TcpStream::connect((ip, port)), listener.accept());
        client?;
        Ok(accepted?.1.ip().to_canonical())
    }

    #[tokio::test]
    async fn by_default_clients_of_both_families_are_served() {
        let args = All::parse_from(["x"]);
        for mut address in [args.process.admin_bind, args.tls.bind] {
            address.set_port(0);
            let listener = listen(address).await.unwrap();
            let ipv4 = IpAddr::from(Ipv4Addr::LOCALHOST);
            assert_eq!(client_of(&listener, ipv4).await.unwrap(), ipv4);
            let ipv6 = IpAddr::from(Ipv6Addr::LOCALHOST);
            match TcpListener::bind((ipv6, 0)).await {
                Ok(_) => assert_eq!(client_of(&listener, ipv6).await.unwrap(), ipv6),
                Err(error) => assert!(has_no_ipv6(&error), "{error}"),
            }
        }
    }

    #[test]
    fn only_a_kernel_without_ipv6_makes_ipv4_enough() {
        let of = |code: Errno| has_no_ipv6(&io::Error::from(code));
        assert!(of(Errno::EAFNOSUPPORT) && of(Errno::EADDRNOTAVAIL));
        assert!(!of(Errno::EADDRINUSE) && !of(Errno::EACCES));
    }
}
