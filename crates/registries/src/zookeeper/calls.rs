//! The calls of one operation of the registry to one address.

use parking_lot::Mutex as SyncMutex;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::error::{RegistryError, RegistryErrorKind};
use crate::limits::{BytesRead, Exceeded, LargeRead, MAX_INSTANCE, MAX_INSTANCES, MAX_READ};
use crate::listed::shown;
use crate::registry::{Change, MayChange};

use super::codes::{self, Refusal};
use super::jute::Malformed;
use super::packets::{self, Acl, Request, Stat};
use super::path;
use super::server::Server;
use super::session::{Answer, MAX_SMALL};

/// The number of requests at the same time. The session sends them without waiting for answers.
pub(super) const CONCURRENCY: usize = 32;

/// What an answer needs besides its bytes.
const OVERHEAD: usize = 64;

/// What an operation of the registry calls.
pub(super) struct Calls<'a> {
    pub(super) server: &'a Server,
    /// For errors.
    pub(super) doing: &'a str,
    /// All calls end until then. It is later after a wait for other large reads.
    deadline: SyncMutex<Instant>,
    /// The change that it makes, if it is one, and whether that may still be made.
    change: Option<(&'a Change, MayChange<'a>)>,
    read: BytesRead,
    /// What it has while it reads much.
    large: Mutex<Option<LargeRead>>,
}

/// A node.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) data: Vec<u8>,
    pub(super) stat: Stat,
}

/// The result of a change. An error is not one of the node's state.
pub(super) type Changed = Result<Result<(), Refusal>, RegistryError>;

impl<'a> Calls<'a> {
    pub(super) fn new(server: &'a Server, doing: &'a str, deadline: Instant) -> Self {
        let deadline = SyncMutex::new(deadline);
        Self { server, doing, deadline, change: None, read: BytesRead::default(), large: Mutex::default() }
    }

    /// Sends a request, and returns the answer, of at most `max` bytes, whatever its code.
    pub(super) async fn call(&self, request: Request, max: usize) -> Result<Answer, RegistryError> {
        let deadline = *self.deadline.lock();
        self.server.call(request, max, deadline, self.doing).await
    }

    /// Has `may_change` asked about `change` before each request that changes something: a read may have taken long.
    pub(super) fn changing(self, change: &'a Change, may_change: MayChange<'a>) -> Self {
        Self { change: Some((change, may_change)), ..self }
    }

    /// Returns the names of the nodes below one, or `None` if there is no such node.
    pub(super) async fn children(&self, path: &str) -> Result<Option<Vec<String>>, RegistryError> {
        let request = Request::Children { path: path.to_owned() };
        let mut answer = self.call(request.clone(), MAX_SMALL).await?;
        if answer.is_cut {
            // The session must not wait, because others use it too: so it is read again.
            self.begin_large().await?;
            answer = self.call(request, MAX_READ).await?;
        }
        self.decoded(answer, Exceeded::Bytes, |body| packets::children(body, MAX_INSTANCES))?
            .map_or(Ok(None), |names| names.map(Some).ok_or_else(|| self.exceeded(Exceeded::Names)))
    }

    /// Waits for the right to read on if this operation has read much already.
    pub(super) async fn wait_if_large(&self) -> Result<(), RegistryError> {
        if self.read.are_many() { self.begin_large().await } else { Ok(()) }
    }

    async fn begin_large(&self) -> Result<(), RegistryError> {
        let mut large = self.large.lock().await;
        if large.is_none() {
            let begin = Instant::now();
            let begun = self.server.large.begin().await;
            let failed = |reason| self.server.error(self.doing, (RegistryErrorKind::Unavailable, reason));
            let begun = large.insert(begun.map_err(failed)?);
            let mut deadline = self.deadline.lock();
            *deadline = begun.until.min(*deadline + begin.elapsed());
        }
        Ok(())
    }

    pub(super) fn exceeded(&self, exceeded: Exceeded) -> RegistryError {
        exceeded.error(self.doing, &self.server.address)
    }

    /// Returns a node, or `None` if there is none.
    pub(super) async fn node(&self, path: &str) -> Result<Option<Node>, RegistryError> {
        let found = self.read(Request::Data { path: path.to_owned() }, packets::data).await?;
        if found.as_ref().is_some_and(|(data, _)| data.len() > MAX_INSTANCE) {
            return Err(self.exceeded(Exceeded::OneInstance));
        }
        Ok(found.map(|(data, stat)| Node { data, stat }))
    }

    /// Returns a node without its data, or `None` if there is none.
    pub(super) async fn stat(&self, path: &str) -> Result<Option<Stat>, RegistryError> {
        self.read(Request::Stat { path: path.to_owned() }, packets::stat).await
    }

    /// Waits until the address has what the leader has now. The answers of a follower may be old otherwise.
    pub(super) async fn sync(&self, path: &str) -> Result<(), RegistryError> {
        self.read(Request::Sync { path: path.to_owned() }, |_| Ok(())).await.map(drop)
    }

    /// Creates a persistent node, and the nodes above it.
    pub(super) async fn create(&self, path: &str, data: Vec<u8>) -> Changed {
        let request = Request::Create { path: path.to_owned(), data, acl: self.acl(Acl::Owned) };
        match self.write(request.clone()).await? {
            Err(Refusal::NoNode) => {
                self.create_parents(path).await?;
                self.write(request).await
            }
            result => Ok(result),
        }
    }

    /// Creates the nodes above one that do not exist.
    pub(super) async fn create_parents(&self, path: &str) -> Result<(), RegistryError> {
        let mut missing = Vec::new();
        // From below: whoever may write there need not be allowed to do so at the top.
        for parent in path::parents(path).collect::<Vec<_>>().into_iter().rev() {
            if self.stat(parent).await?.is_some() {
                break;
            }
            missing.push(parent);
        }
        for parent in missing.into_iter().rev() {
            let acl = self.acl(Acl::OwnedParent);
            let request = Request::Create { path: parent.to_owned(), data: Vec::new(), acl };
            match self.write(request).await {
                Ok(_) => {}
                // Nothing of the instance was written yet.
                Err(error) if error.kind == RegistryErrorKind::Unknown => {
                    return Err(RegistryError { kind: RegistryErrorKind::Unavailable, ..error });
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Makes a change.
    pub(super) async fn write(&self, request: Request) -> Changed {
        if let Some((change, may_change)) = self.change {
            may_change(change)?;
        }
        let is_transaction = matches!(request, Request::Multi(_));
        let mut answer = self.call(request, MAX_SMALL).await?;
        if is_transaction && answer.code == 0 {
            answer.code = packets::multi(&answer.body)
                .map_err(|error| RegistryError { kind: RegistryErrorKind::Unknown, ..self.invalid(error) })?;
        }
        match codes::refusal(answer.code) {
            Some(refusal) => Ok(Err(refusal)),
            None if answer.code == 0 => Ok(Ok(())),
            None => Err(self.server.error(self.doing, codes::describe(answer.code, true))),
        }
    }

    /// Returns the request that creates a node.
    pub(super) fn creation(&self, path: String, data: Vec<u8>) -> Request {
        Request::Create { path, data, acl: self.acl(Acl::Owned) }
    }

    fn acl(&self, owned: Acl) -> Acl {
        if self.server.has_user() { owned } else { Acl::Open }
    }

    async fn read<T>(
        &self,
        request: Request,
        decode: impl FnOnce(&[u8]) -> Result<T, Malformed>,
    ) -> Result<Option<T>, RegistryError> {
        let answer = self.call(request, MAX_SMALL).await?;
        self.decoded(answer, Exceeded::OneInstance, decode)
    }

    fn decoded<T>(
        &self,
        answer: Answer,
        too_long: Exceeded,
        decode: impl FnOnce(&[u8]) -> Result<T, Malformed>,
    ) -> Result<Option<T>, RegistryError> {
        let Answer { code, body, is_cut } = answer;
        if is_cut && code == 0 {
            return Err(self.exceeded(too_long));
        }
        self.read.add(body.len() + OVERHEAD).map_err(|exceeded| self.exceeded(exceeded))?;
        match codes::refusal(code) {
            Some(Refusal::NoNode) => Ok(None),
            None if code == 0 => decode(&body).map(Some).map_err(|error| self.invalid(error)),
            _ => Err(self.server.error(self.doing, codes::describe(code, false))),
        }
    }

    fn invalid(&self, error: Malformed) -> RegistryError {
        self.server.error(self.doing, (RegistryErrorKind::Invalid, error.to_string()))
    }

    /// Returns the error of a node whose data nobody understands: it is not known whether it is an instance.
    pub(super) fn unreadable(&self, path: &str) -> RegistryError {
        let reason = format!(
            "node {} is not an instance that Podward can read, so it is not known which one it is; correct or remove it",
            shown(path)
        );
        self.server.error(self.doing, (RegistryErrorKind::Invalid, reason))
    }

    /// Returns the error of a change that does not fit what is stored.
    pub(super) fn conflict(&self, reason: impl Into<String>) -> RegistryError {
        self.server.error(self.doing, (RegistryErrorKind::Conflict, reason.into()))
    }

    /// Returns the error of a change that is never possible.
    pub(super) fn rejected(&self, reason: impl Into<String>) -> RegistryError {
        self.server.error(self.doing, (RegistryErrorKind::Rejected, reason.into()))
    }
}
