"""Authentication of callers: Podward sends a bearer token, and the API server reviews it."""

import json
import os
import ssl
import threading
import time
import urllib.error
import urllib.request

import grpc

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
# The time for which a review is cached, in seconds.
CACHE_SECONDS = 10


class Refused(Exception):
    def __init__(self, code, why):
        super().__init__(why)
        self.code = code


class Caller:
    """Accepts calls of one user."""

    def __init__(self, user, audience, api_server=None, api_ca=None, api_token_file=None):
        self._user = user
        self._audience = audience
        self._api = api_server or _in_cluster()
        self._tls = ssl.create_default_context(cafile=api_ca or f"{ACCOUNT}/ca.crt")
        self._token_file = api_token_file or f"{ACCOUNT}/token"
        # The last accepted token and the time of its review. There is one caller, so there is one token.
        self._known = (None, 0.0)
        self._lock = threading.Lock()

    def check(self, metadata):
        """Raises Refused if the call is not from the user."""
        header = next((value for key, value in metadata if key == "authorization"), "")
        if not header.startswith("Bearer "):
            raise Refused(grpc.StatusCode.UNAUTHENTICATED, "send `authorization: Bearer <token>`")
        token = header[len("Bearer ") :]
        with self._lock:
            known, since = self._known
            if token == known and time.monotonic() - since < CACHE_SECONDS:
                return
            status = self._review(token)
            if not status.get("authenticated") or self._audience not in status.get("audiences", []):
                why = f"the token is not valid here: {status.get('error', '')}"
                raise Refused(grpc.StatusCode.UNAUTHENTICATED, why)
            user = status.get("user", {}).get("username", "")
            if user != self._user:
                raise Refused(grpc.StatusCode.PERMISSION_DENIED, f"{user} may not call this hook")
            self._known = (token, time.monotonic())

    def _review(self, token):
        # Each hook has an audience of its own. The server of another hook cannot use its token here.
        spec = {"token": token, "audiences": [self._audience]}
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
        with open(self._token_file, encoding="utf-8") as file:
            own = file.read().strip()
        request = urllib.request.Request(
            f"{self._api}/apis/authentication.k8s.io/v1/tokenreviews",
            data=json.dumps(review).encode(),
            headers={"Authorization": f"Bearer {own}", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, context=self._tls, timeout=5) as response:
                return json.load(response).get("status", {})
        except (urllib.error.URLError, TimeoutError, ValueError) as error:
            raise Refused(grpc.StatusCode.UNAVAILABLE, f"could not review the token: {error}") from error


def _in_cluster():
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
