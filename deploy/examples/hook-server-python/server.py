"""A hook server for Podward. It removes pods from the backends of a load balancer, and adds them.

Podward connects to it. For a system that cannot accept connections, see attach.py.
"""

import random
import sys
import threading
from concurrent import futures

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from podward.v1 import hook_pb2 as pb
from podward.v1 import hook_pb2_grpc

import ending
import hook
import options
from balancer import Balancer
from caller import Caller, Refused

SERVICE = pb.DESCRIPTOR.services_by_name["HookHandler"].full_name


class Handler(hook_pb2_grpc.HookHandlerServicer):
    def __init__(self, balancer, caller):
        self._balancer = balancer
        self._caller = caller

    def Handle(self, request, context):
        try:
            if self._caller:
                self._caller.check(context.invocation_metadata())
            return hook.answer(self._balancer, request)
        except Refused as refused:
            context.abort(refused.code, str(refused))
        except hook.BadQuestion as bad:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(bad))
        except (OSError, ValueError) as error:
            # An error means that the hook is unreachable. Podward retries with growing delays, and shows the message.
            context.abort(grpc.StatusCode.UNAVAILABLE, str(error))


def serve(args):
    caller = None
    if args.caller:
        caller = Caller(args.caller, f"podward.io/hooks/{args.hook_name}", args.api_server, args.api_ca, args.api_token_file)
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=32))
    hook_pb2_grpc.add_HookHandlerServicer_to_server(Handler(Balancer(args.backends, args.report), caller), server)
    healthy = health.HealthServicer()
    healthy.set("", health_pb2.HealthCheckResponse.SERVING)
    healthy.set(SERVICE, health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(healthy, server)
    port = server.add_secure_port(args.bind, credentials(args.tls_cert, args.tls_key))
    server.start()
    print(f"serving at {args.bind.rpartition(':')[0]}:{port}", flush=True)
    return server


def credentials(cert, key):
    """Returns credentials that read the certificate again when it has changed."""
    last = None

    def fetch():
        nonlocal last
        now = (options.read(key, "rb"), options.read(cert, "rb"))
        if now == last:
            return None
        last = now
        return grpc.ssl_server_certificate_configuration([now])

    return grpc.dynamic_ssl_server_credentials(fetch(), fetch, require_client_authentication=False)


def register(args, stopping):
    """Registers the hook, and retries until Podward is available. Returns false if the hook is invalid.

    A repeated registration changes nothing, so every replica registers whenever it starts.
    """
    tls = grpc.ssl_channel_credentials(options.read(args.podward_ca, "rb"))
    endpoint = pb.Endpoint(url=args.url, ca_certificates=options.read(args.ca))
    pause = 0.5
    while not stopping.is_set():
        # Read the token each time, because Kubernetes renews it.
        token = options.read(args.token_file).strip()
        with grpc.secure_channel(args.podward, tls) as channel:
            try:
                warnings = hook.register(channel, token, args.hook_name, dict(args.pod_label), endpoint=endpoint)
                print(f"registered as {args.hook_name} {warnings}", flush=True)
                return True
            except grpc.RpcError as error:
                print(f"not registered yet: {error.code().name}: {error.details()}", file=sys.stderr, flush=True)
                if hook.is_final(error):
                    return False
        stopping.wait(pause * random.uniform(0.5, 1))
        pause = min(30, pause * 2)
    return True


def main():
    parser = options.parser(__doc__.splitlines()[0])
    parser.add_argument("--bind", default="0.0.0.0:9445", help="the address that this server listens on")
    parser.add_argument("--tls-cert", required=True, metavar="FILE", help="the PEM certificate of this server")
    parser.add_argument("--tls-key", required=True, metavar="FILE", help="the PEM private key of this server")
    parser.add_argument("--url", help="the URL at which Podward reaches this server, https://HOST:PORT")
    parser.add_argument("--ca", metavar="FILE", help="PEM certificates of this server's authorities")
    parser.add_argument("--caller", metavar="USER", help="the only user that may call; by default, all users")
    parser.add_argument("--api-server", metavar="URL", help="the API server, outside of a pod")
    parser.add_argument("--api-ca", metavar="FILE", help="PEM certificates of its authorities, outside of a pod")
    parser.add_argument("--api-token-file", metavar="FILE", help="the token for the API server, outside of a pod")
    args = parser.parse_args()
    if args.podward and not (args.podward_ca and args.token_file and args.url and args.ca):
        parser.error("--podward needs --podward-ca, --token-file, --url and --ca")

    stopping = threading.Event()
    ending.on_signal(stopping.set)
    server = serve(args)
    # Register while serving, because Podward checks that the endpoint answers. The hook stays registered when this
    # process ends, because it restarts, or another replica answers.
    registered = register(args, stopping) if args.podward else True
    if registered:
        stopping.wait()
    server.stop(grace=10).wait()
    return 0 if registered else 1


if __name__ == "__main__":
    sys.exit(main())
