//! The packets of ZooKeeper that this client sends and receives (`zookeeper.jute` of ZooKeeper).

use super::jute::{Decoder, Encoder, Malformed};

/// The number of a request that no call has: the event of a watch.
pub(super) const EVENT: i32 = -1;
/// The number of pings.
pub(super) const PING: i32 = -2;
/// The number of the request with the credentials.
const AUTH: i32 = -4;

/// The codes of operations (`ZooDefs.OpCode`).
mod operation {
    pub(super) const CREATE: i32 = 1;
    pub(super) const DELETE: i32 = 2;
    pub(super) const EXISTS: i32 = 3;
    pub(super) const GET_DATA: i32 = 4;
    pub(super) const SET_DATA: i32 = 5;
    pub(super) const GET_CHILDREN: i32 = 8;
    pub(super) const SYNC: i32 = 9;
    pub(super) const PING: i32 = 11;
    pub(super) const CHECK: i32 = 13;
    pub(super) const MULTI: i32 = 14;
    pub(super) const AUTH: i32 = 100;
    pub(super) const ADD_WATCH: i32 = 106;
    pub(super) const CLOSE: i32 = -11;
    pub(super) const ERROR: i32 = -1;
}

/// `AddWatchMode.PERSISTENT_RECURSIVE`.
const RECURSIVE: i32 = 1;
const READ: i32 = 1;
const CREATE: i32 = 4;
const ALL: i32 = 31;
/// Before the operations of a transaction there is a header, and after them one of this type.
const END: i32 = -1;

/// Who may do what with a node that is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Acl {
    /// Everybody may do everything.
    Open,
    /// The user that creates it may do everything, everybody may read.
    Owned,
    /// As `Owned`, and everybody may create nodes below: applications and their clients do.
    OwnedParent,
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// Reads the names of the nodes below one.
    Children {
        path: String,
    },
    Data {
        path: String,
    },
    Stat {
        path: String,
    },
    /// Waits until the server has what the leader had.
    Sync {
        path: String,
    },
    /// Creates a persistent node.
    Create {
        path: String,
        data: Vec<u8>,
        acl: Acl,
    },
    Set {
        path: String,
        data: Vec<u8>,
        version: i32,
    },
    Delete {
        path: String,
        version: i32,
    },
    /// Makes all of these changes, or none.
    Multi(Vec<Request>),
    /// Reports every change at and below a node as an event, until the connection ends.
    Watch {
        path: String,
    },
}

/// What is known of a node besides its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stat {
    /// The transaction that created the node.
    pub(super) created: i64,
    /// The transaction that wrote its data.
    pub(super) modified: i64,
    /// The number of times that its data was written.
    pub(super) version: i32,
    /// True if the node ends with the session that created it.
    pub(super) is_ephemeral: bool,
}

/// A packet of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reply<'a> {
    /// The number of the request, or one of the constants.
    pub(super) number: i32,
    /// 0, or an error.
    pub(super) code: i32,
    pub(super) body: &'a [u8],
}

/// What the server says about a new session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Connected {
    /// In milliseconds. Not positive if there is no session.
    pub(super) timeout: i32,
}

impl Request {
    fn operation(&self) -> i32 {
        match self {
            Self::Children { .. } => operation::GET_CHILDREN,
            Self::Data { .. } => operation::GET_DATA,
            Self::Stat { .. } => operation::EXISTS,
            Self::Sync { .. } => operation::SYNC,
            Self::Create { .. } => operation::CREATE,
            Self::Set { .. } => operation::SET_DATA,
            Self::Delete { .. } => operation::DELETE,
            Self::Multi(_) => operation::MULTI,
            Self::Watch { .. } => operation::ADD_WATCH,
        }
    }

    /// Returns true if it may change something.
    pub(super) fn is_write(&self) -> bool {
        matches!(self, Self::Create { .. } | Self::Set { .. } | Self::Delete { .. } | Self::Multi(_))
    }

    /// Returns it as it is sent.
    pub(super) fn frame(&self, number: i32) -> Vec<u8> {
        let mut packet = Encoder::default();
        packet.int(number).int(self.operation());
        self.encode(&mut packet);
        packet.frame()
    }

    fn encode(&self, packet: &mut Encoder) {
        match self {
            Self::Children { path } | Self::Data { path } | Self::Stat { path } => {
                packet.text(path).bool(false);
            }
            Self::Sync { path } => {
                packet.text(path);
            }
            Self::Create { path, data, acl } => {
                packet.text(path).bytes(data);
                let entries: &[(i32, &str, &str)] = match acl {
                    Acl::Open => &[(ALL, "world", "anyone")],
                    // Whoever has given credentials on this connection.
                    Acl::Owned => &[(ALL, "auth", ""), (READ, "world", "anyone")],
                    Acl::OwnedParent => &[(ALL, "auth", ""), (READ | CREATE, "world", "anyone")],
                };
                packet.int(i32::try_from(entries.len()).unwrap_or_default());
                for (permissions, scheme, id) in entries {
                    packet.int(*permissions).text(scheme).text(id);
                }
                // Persistent.
                packet.int(0);
            }
            Self::Set { path, data, version } => {
                packet.text(path).bytes(data).int(*version);
            }
            Self::Delete { path, version } => {
                packet.text(path).int(*version);
            }
            Self::Multi(changes) => {
                for change in changes {
                    packet.int(change.operation()).bool(false).int(-1);
                    change.encode(packet);
                }
                packet.int(END).bool(true).int(-1);
            }
            Self::Watch { path } => {
                packet.text(path).int(RECURSIVE);
            }
        }
    }
}

/// Returns the first packet of a connection, which asks for a session.
pub(super) fn connect(timeout: i32) -> Vec<u8> {
    let mut packet = Encoder::default();
    // The version of the protocol, the last transaction that was seen, the timeout, the session, its password, and that the
    // server may change something: one without a leader may not.
    packet.int(0).long(0).int(timeout).long(0).bytes(&[0; 16]).bool(false);
    packet.frame()
}

pub(super) fn connected(packet: &[u8]) -> Result<Connected, Malformed> {
    let mut decoder = Decoder::new(packet);
    decoder.int()?;
    let timeout = decoder.int()?;
    // The session and its password. It is not used on another connection.
    decoder.long()?;
    decoder.bytes()?;
    Ok(Connected { timeout })
}

pub(super) fn authenticate(user: &str, password: &str) -> Vec<u8> {
    let mut packet = Encoder::default();
    packet.int(AUTH).int(operation::AUTH).int(0).text("digest").text(&format!("{user}:{password}"));
    packet.frame()
}

pub(super) fn ping() -> Vec<u8> {
    let mut packet = Encoder::default();
    packet.int(PING).int(operation::PING);
    packet.frame()
}

/// Returns the request that ends the session.
pub(super) fn close(number: i32) -> Vec<u8> {
    let mut packet = Encoder::default();
    packet.int(number).int(operation::CLOSE);
    packet.frame()
}

pub(super) fn reply(packet: &[u8]) -> Result<Reply<'_>, Malformed> {
    let mut decoder = Decoder::new(packet);
    let number = decoder.int()?;
    // The last transaction of the server.
    decoder.long()?;
    let code = decoder.int()?;
    Ok(Reply { number, code, body: decoder.rest() })
}

/// Returns the names in an answer. `None` if there are more than `max`.
pub(super) fn children(body: &[u8], max: usize) -> Result<Option<Vec<String>>, Malformed> {
    Decoder::new(body).texts(max)
}

pub(super) fn data(body: &[u8]) -> Result<(Vec<u8>, Stat), Malformed> {
    let mut decoder = Decoder::new(body);
    let data = decoder.bytes()?.to_vec();
    Ok((data, read_stat(&mut decoder)?))
}

pub(super) fn stat(body: &[u8]) -> Result<Stat, Malformed> {
    read_stat(&mut Decoder::new(body))
}

fn read_stat(decoder: &mut Decoder<'_>) -> Result<Stat, Malformed> {
    let (created, modified) = (decoder.long()?, decoder.long()?);
    // The times.
    decoder.skip(16)?;
    let version = decoder.int()?;
    // The versions of the names of the nodes below, and of the ACL.
    decoder.skip(8)?;
    let is_ephemeral = decoder.long()? != 0;
    // The length of the data, the number of nodes below, and the transaction that changed them.
    decoder.skip(16)?;
    Ok(Stat { created, modified, version, is_ephemeral })
}

/// Returns the error of a transaction, or 0.
pub(super) fn multi(body: &[u8]) -> Result<i32, Malformed> {
    let mut decoder = Decoder::new(body);
    let mut code = 0;
    loop {
        let (operation, is_end, _) = (decoder.int()?, decoder.bool()?, decoder.int()?);
        if is_end {
            return Ok(code);
        }
        match operation {
            operation::CREATE => {
                decoder.text()?;
            }
            operation::SET_DATA => {
                read_stat(&mut decoder)?;
            }
            operation::DELETE | operation::CHECK => {}
            operation::ERROR => {
                let found = decoder.int()?;
                // Those before the change that failed have 0, those after it -2.
                if code == 0 || code == super::codes::ROLLED_BACK {
                    code = found;
                }
            }
            _ => return Err(Malformed("a transaction has an unknown operation")),
        }
    }
}

#[cfg(test)]
mod tests;
