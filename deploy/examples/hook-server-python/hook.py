"""The answers. Each is worked out from what is so now, so it doesn't matter how often, or by whom, a question is asked."""

import grpc
from google.protobuf.duration_pb2 import Duration
from podward.v1 import hook_pb2 as pb

# When to ask again while connections end. Podward asks no sooner.
RETRY_AFTER = Duration(nanos=500_000_000)


class BadQuestion(Exception):
    """A question that this hook has no answer to."""


def answer(balancer, question):
    """The answer to a HandleRequest."""
    pod = question.pod
    if not pod.uid:
        raise BadQuestion("there is no pod with a uid in it")
    if question.phase == pb.PHASE_PREPARE:
        response = _let_go(balancer, pod)
    elif question.phase == pb.PHASE_COMPLETE:
        response = _take_in(balancer, pod)
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


def _let_go(balancer, pod):
    """PREPARE: no new connections, then wait for the open ones."""
    generation = balancer.set(pod.uid, None)
    report = balancer.report()
    if report is None:
        return _done(pb.EVIDENCE_LEVEL_ASSUMED, "the balancer was told, and doesn't report")
    if report["generation"] < generation:
        return _pending("the balancer has not taken in the change yet")
    still_open = report["connections"].get(_address(pod), 0)
    if still_open:
        return _pending("1 connection is left" if still_open == 1 else f"{still_open} connections are left")
    return _done(pb.EVIDENCE_LEVEL_PROVEN, f"out since generation {generation}, no connection left")


def _take_in(balancer, pod):
    """COMPLETE: take it in, then wait until the balancer has."""
    if _tcp_port(pod) is None:
        why = f"no container of {pod.namespace}/{pod.name} declares a TCP port to send traffic to"
        return pb.HandleResponse(outcome=pb.OUTCOME_REJECTED, message=why)
    address = _address(pod)
    if address is None:
        return _pending("the pod has no address yet")
    generation = balancer.set(pod.uid, {"pod": f"{pod.namespace}/{pod.name}", "address": address})
    report = balancer.report()
    if report is None:
        return _done(pb.EVIDENCE_LEVEL_ASSUMED, "the balancer was told, and doesn't report")
    if report["generation"] < generation:
        return _pending("the balancer has not taken in the change yet")
    return _done(pb.EVIDENCE_LEVEL_PROVEN, f"in since generation {generation}")


def _forget(balancer, pod):
    """RELEASE: the pod is gone, so there is nothing to wait for."""
    generation = balancer.set(pod.uid, None)
    return _done(pb.EVIDENCE_LEVEL_ASSUMED, f"out of the backends of generation {generation}")


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
    """Registers the hook, and gives what Podward finds odd about it.

    `connection` is `endpoint=Endpoint(..)` or `attachment=Attachment()`. What is not set has a default: 5 minutes for an answer,
    and pods wait on after that.
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
    """The metadata that says who calls."""
    return [("authorization", f"Bearer {token}")]


def is_final(error):
    """Whether trying again would not help: the hook itself is wrong."""
    return error.code() == grpc.StatusCode.INVALID_ARGUMENT
