"""The same hook for a system that cannot accept connections. It connects to Podward and receives questions in a stream.

It needs no Service and no certificate.
"""

import queue
import random
import sys
import threading
from concurrent import futures

import grpc
from podward.v1 import hook_pb2 as pb
from podward.v1 import hook_pb2_grpc

import ending
import hook
import options
from balancer import Balancer

# Detect a broken connection within these times, in milliseconds.
KEEP_ALIVE = [("grpc.keepalive_time_ms", 30_000), ("grpc.keepalive_timeout_ms", 10_000)]
# The delays between attempts to attach, in seconds.
FIRST_DELAY, LONGEST_DELAY = 0.5, 30


class Life(threading.Event):
    """Set when the program is to end. `end` also cancels the stream."""

    stream = None
    delay = FIRST_DELAY

    def end(self):
        self.set()
        if self.stream:
            self.stream.cancel()


def attach(channel, token, args, balancer, workers, life):
    """Attaches, and answers questions until the stream ends."""
    up = queue.SimpleQueue()
    up.put(pb.AttachRequest(hello=pb.AttachHello(hook_name=args.hook_name)))
    down = hook_pb2_grpc.HookRegistryStub(channel).Attach(iter(up.get, None), metadata=hook.bearer(token))
    life.stream = down
    if life.is_set():
        down.cancel()
    try:
        for message in down:
            kind = message.WhichOneof("message")
            if kind == "attached":
                life.delay = FIRST_DELAY
                print(f"attached as {args.hook_name}", flush=True)
            elif kind == "call":
                workers.submit(_answer, balancer, message.call, up)
            # A `cancelled` call needs no action: Podward ignores its answer.
    finally:
        up.put(None)


def _answer(balancer, call, up):
    try:
        response = hook.answer(balancer, call.request)
    except (hook.BadQuestion, OSError, ValueError) as error:
        # A stream cannot answer with a gRPC error. PENDING reports the error, and Podward asks again.
        print(f"call {call.call_id}: {error}", file=sys.stderr, flush=True)
        response = pb.HandleResponse(outcome=pb.OUTCOME_PENDING, message=str(error))
    up.put(pb.AttachRequest(answer=pb.AttachAnswer(call_id=call.call_id, response=response)))


def main():
    parser = options.parser(__doc__.splitlines()[0])
    parser.add_argument("--register", action="store_true", help="register the hook first; otherwise kubectl does")
    args = parser.parse_args()
    if not (args.podward and args.podward_ca and args.token_file):
        parser.error("--podward, --podward-ca and --token-file are needed")

    life = Life()
    ending.on_signal(life.end)
    balancer = Balancer(args.backends, args.report)
    with futures.ThreadPoolExecutor(max_workers=32) as workers:
        while not life.is_set():
            tls = grpc.ssl_channel_credentials(options.read(args.podward_ca, "rb"))
            # Read the token each time, because Kubernetes renews it.
            token = options.read(args.token_file).strip()
            with grpc.secure_channel(args.podward, tls, options=KEEP_ALIVE) as channel:
                try:
                    if args.register:
                        labels = dict(args.pod_label)
                        hook.register(channel, token, args.hook_name, labels, attachment=pb.Attachment())
                    attach(channel, token, args, balancer, workers, life)
                    print("the stream has ended", file=sys.stderr, flush=True)
                except grpc.RpcError as error:
                    if life.is_set():
                        break
                    print(f"not attached: {error.code().name}: {error.details()}", file=sys.stderr, flush=True)
                    if hook.is_final(error):
                        return 1
            # Attach again after a random delay, so that not all hooks attach at the same time.
            life.wait(life.delay * random.uniform(0.5, 1))
            life.delay = min(LONGEST_DELAY, life.delay * 2)
    return 0


if __name__ == "__main__":
    sys.exit(main())
