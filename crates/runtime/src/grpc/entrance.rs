//! Who may send a request's body: callers are authenticated by the head of their request.

use std::collections::HashSet;
use std::sync::Arc;

use hyper::Request;
use tonic::Status;

use crate::authn::{Authenticator, Identity, MAX_CONCURRENT_REVIEWS};
use crate::connections::{ConnectionProof, FairTurns, PeerPlace, PeerPlaces};

use super::limits::GrpcLimits;

/// The services that need no credentials, because their content is public.
const OPEN_SERVICES: [&str; 2] = ["grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection"];
/// Callers that are authenticated at the same time on unproven connections.
const CONCURRENT_CALLERS: usize = 24;
/// The same on proven connections: the other TokenReviews that an [`Authenticator`] has under way, so that neither waits for the
/// other.
const CONCURRENT_PROVEN: usize = MAX_CONCURRENT_REVIEWS - CONCURRENT_CALLERS;

/// Lets requests in by their head. Peers take turns, so a peer that sends many wrong tokens delays only itself.
pub(super) struct Entrance {
    services: HashSet<&'static str>,
    authenticator: Option<Arc<Authenticator>>,
    unknown: PeerPlaces,
    turns: FairTurns,
    proven_turns: FairTurns,
    open: PeerPlaces,
}

/// What a request that was let in may do.
pub(super) enum Admitted {
    /// It was sent by this caller.
    Caller(Arc<Identity>),
    /// It is for a service that needs no credentials, and keeps this place.
    Anyone(PeerPlace),
    /// The services authenticate callers themselves.
    Unchecked,
}

impl Entrance {
    pub(super) fn new(
        services: HashSet<&'static str>,
        authenticator: Option<Arc<Authenticator>>,
        limits: &GrpcLimits,
    ) -> Self {
        let (unknown, open) =
            (PeerPlaces::new(limits.unknown_requests), PeerPlaces::new(limits.open_requests));
        let (turns, proven_turns) = (FairTurns::new(CONCURRENT_CALLERS), FairTurns::new(CONCURRENT_PROVEN));
        Self { services, authenticator, unknown, turns, proven_turns, open }
    }

    /// Lets `request` in, on the connection of `proof`. A caller that is authenticated proves the connection.
    ///
    /// # Errors
    ///
    /// UNIMPLEMENTED for an unknown service; RESOURCE_EXHAUSTED when too many such requests are under way;
    /// UNAUTHENTICATED and UNAVAILABLE as [`Authenticator::identify`].
    pub(super) async fn admit<B>(
        &self,
        request: &Request<B>,
        proof: &ConnectionProof,
    ) -> Result<Admitted, Status> {
        let service = service_of(request.uri().path());
        if OPEN_SERVICES.contains(&service) {
            let place = self.open.take(proof.peer());
            return place.map(Admitted::Anyone).ok_or_else(|| {
                Status::resource_exhausted(format!(
                    "too many requests to {service} are in flight; try again later"
                ))
            });
        }
        if !self.services.contains(service) {
            return Err(Status::unimplemented("this port does not have that service"));
        }
        let Some(authenticator) = &self.authenticator else { return Ok(Admitted::Unchecked) };
        if proof.is_proven() {
            if let Some(identity) = authenticator.known(request.headers(), request.extensions()) {
                return Ok(Admitted::Caller(identity));
            }
            let _turn = self.proven_turns.turn(proof.peer()).await;
            let identity = authenticator.identify(request.headers(), request.extensions()).await?;
            return Ok(Admitted::Caller(identity));
        }
        let _place = self.unknown.take(proof.peer()).ok_or_else(|| {
            Status::resource_exhausted("too many callers are being authenticated; try again with back-off")
        })?;
        let _turn = self.turns.turn(proof.peer()).await;
        let identity = authenticator.identify(request.headers(), request.extensions()).await?;
        proof.prove();
        Ok(Admitted::Caller(identity))
    }
}

/// Returns the service in a path, as in `/podward.v1.Lifecycle/Begin`.
fn service_of(path: &str) -> &str {
    path.strip_prefix('/').and_then(|path| path.split_once('/')).map_or("", |(service, _)| service)
}
