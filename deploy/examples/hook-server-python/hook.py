"""The answers. They depend only on the present state, so a question can be repeated at any time and to any replica."""

import grpc
from google.protobuf.duration_pb2 import Duration
from podward.v1 import hook_pb2 as pb

# The delay until Podward asks again while connections are open.
RETRY_AFTER = Duration(nanos=500_000_000)


class BadQuestion(Exception):
    """A question that this hook cannot answer."""


def answer(balancer, question):
    """Returns the answer to a HandleRequest. Raises BadQuestion if there is none."""
    pod = question.pod
    if not pod.uid:
        raise BadQuestion("the request has no pod with a UID")
    if question.phase == pb.PHASE_PREPARE:
        response = _drain(balancer, pod)
    elif question.phase == pb.PHASE_COMPLETE:
        response = _add(balancer, pod)
    elif question.phase == pb.PHASE_RELEASE:
        response = _forget(balancer, pod)
    else:
        raise BadQuestion(f"this hook is not for phase {question.phase}")
    print(
        pb.Phase.Name(question.phase),
        f"{pod.namespace}/{pod.name}:",
        pb.Outcome.Name(response.outcome),
        response.message or response.evidence.detail,
        flush=True,
    )
    return response


def _drain(balancer, pod):
    """PREPARE: removes the pod from the backends, and waits until its connections have ended."""
    generation = balancer.set(pod.uid, None)
    report = balancer.report()
    if report is None:
        return _done(pb.EVIDENCE_LEVEL_ASSUMED, "the balancer does not report its state")
    if report["generation"] < generation:
        return _pending("the balancer has not applied the change yet")
    still_open = report["connections"].get(_address(pod), 0)
    if still_open:
        return _pending("1 connection is left" if still_open == 1 else f"{still_open} connections are left")
    return _done(pb.EVIDENCE_LEVEL_PROVEN, f"removed in generation {generation}, no open connections")


def _add(balancer, pod):
    """COMPLETE: adds the pod to the backends, and waits until the balancer has applied the change."""
    if _tcp_port(pod) is None:
        why = f"no container of {pod.namespace}/{pod.name} declares a TCP port to send traffic to"
        return pb.HandleResponse(outcome=pb.OUTCOME_REJECTED, message=why)
    address = _address(pod)
    if address is None:
        return _pending("the pod has no address yet")
    generation = balancer.set(pod.uid, {"pod": f"{pod.namespace}/{pod.name}", "address": address})
    report = balancer.report()
    if report is None:
        return _done(pb.EVIDENCE_LEVEL_ASSUMED, "the balancer does not report its state")
    if report["generation"] < generation:
        return _pending("the balancer has not applied the change yet")
    return _done(pb.EVIDENCE_LEVEL_PROVEN, f"added in generation {generation}")


def _forget(balancer, pod):
    """RELEASE: removes the pod from the backends. The pod has ended, so there is nothing to wait for."""
    generation = balancer.set(pod.uid, None)
    return _done(pb.EVIDENCE_LEVEL_ASSUMED, f"removed in generation {generation}")


def _tcp_port(pod):
    return next((port.port for port in pod.ports if port.protocol in ("TCP", "")), None)


def _address(pod):
    port = _tcp_port(pod)
    if not pod.ips or port is None:
        return None
    ip = pod.ips[0]
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


def _done(level, detail):
    return pb.HandleResponse(outcome=pb.OUTCOME_DONE, evidence=pb.Evidence(level=level, detail=detail))


def _pending(what):
    return pb.HandleResponse(outcome=pb.OUTCOME_PENDING, message=what, retry_after=RETRY_AFTER)


def register(channel, token, name, labels, **connection):
    """Registers the hook, and returns the warnings of Podward.

    `connection` is `endpoint=Endpoint(..)` or `attachment=Attachment()`. The other fields have defaults: the deadline
    is 5 minutes, and after it pods continue to wait.
    """
    from podward.v1 import hook_pb2_grpc

    hook = pb.Hook(
        name=name,
        pod_selector=pb.LabelSelector(match_labels=labels),
        phases=[pb.PHASE_PREPARE, pb.PHASE_COMPLETE, pb.PHASE_RELEASE],
        **connection,
    )
    registry = hook_pb2_grpc.HookRegistryStub(channel)
    request = pb.RegisterRequest(hook=hook)
    return list(registry.Register(request, metadata=bearer(token), timeout=10).warnings)


def bearer(token):
    """Returns the metadata that authenticates this program."""
    return [("authorization", f"Bearer {token}")]


def is_final(error):
    """Returns true if a retry cannot succeed, because the hook is invalid."""
    return error.code() == grpc.StatusCode.INVALID_ARGUMENT
