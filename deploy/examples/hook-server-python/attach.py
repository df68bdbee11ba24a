"""The same hook for a system that can't accept connections: it connects to Podward, and the questions come down the stream.

Podward needs no address, certificate or token of it.
"""

import queue
import random
import signal
import sys
import threading
from concurrent import futures

import grpc
from podward.v1 import hook_pb2 as pb
from podward.v1 import hook_pb2_grpc

import hook
import options
from balancer import Balancer

# A connection that is dead without having been closed is noticed after so many milliseconds.
KEEP_ALIVE = [("grpc.keepalive_time_ms", 30_000), ("grpc.keepalive_timeout_ms", 10_000)]
# Between attempts to attach, in seconds.
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30


class Life(threading.Event):
    """Set by SIGTERM, which also ends the stream."""

    stream = None
    pause = FIRST_PAUSE

    def end(self, *_):
        self.set()
        if self.stream:
            self.stream.cancel()


def attach(channel, token, args, balancer, workers, life):
    """Answers questions until the stream ends."""
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
                life.pause = FIRST_PAUSE
                print(f"attached as {args.hook_name}", flush=True)
            elif kind == "call":
                workers.submit(_answer, balancer, message.call, up)
            # `cancelled`: nothing to stop here, answers take no time. An answer to it is ignored.
    finally:
        up.put(None)


def _answer(balancer, call, up):
    try:
        response = hook.answer(balancer, call.request)
    except (hook.BadQuestion, OSError, ValueError) as error:
        # There is no gRPC error to answer with here: PENDING says what is wrong, and Podward asks again.
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
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, life.end)
    balancer = Balancer(args.backends, args.report)
    with futures.ThreadPoolExecutor(max_workers=32) as workers:
        while not life.is_set():
            tls = grpc.ssl_channel_credentials(options.read(args.podward_ca, "rb"))
            # Read each time: Kubernetes renews it.
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
            # Podward's leader may have changed, or the network: come back, but not all at once.
            life.wait(life.pause * random.uniform(0.5, 1))
            life.pause = min(LONGEST_PAUSE, life.pause * 2)
    return 0


if __name__ == "__main__":
    sys.exit(main())
