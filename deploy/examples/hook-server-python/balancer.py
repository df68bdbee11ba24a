"""A stand-in for a load balancer: one file says what it is to serve, another, written by the balancer, what it does.

    backends.json  {"generation": 2, "backends": {"<pod uid>": {"pod": "shop/web-0", "address": "10.0.0.7:8080"}}}
    report.json    {"generation": 2, "connections": {"10.0.0.7:8080": 3}}
"""

import json
import os
import threading


class Balancer:
    def __init__(self, backends, report):
        self._backends = backends
        self._report = report
        # Calls for several pods come at the same time; the file is changed by one at a time.
        self._changing = threading.Lock()

    def set(self, uid, backend):
        """Has the pod `uid` served at `backend`, or not at all (None), and gives the generation that says so.

        Nothing is written when it is so already, so that being asked twice changes nothing.
        """
        with self._changing:
            wanted = _read(self._backends) or {"generation": 0, "backends": {}}
            if wanted["backends"].get(uid) == backend:
                return wanted["generation"]
            if backend is None:
                del wanted["backends"][uid]
            else:
                wanted["backends"][uid] = backend
            wanted["generation"] += 1
            # A reader sees the old file or the new one, never half of one.
            new = f"{self._backends}.new"
            with open(new, "w", encoding="utf-8") as file:
                json.dump(wanted, file, indent=2)
            os.replace(new, self._backends)
            return wanted["generation"]

    def report(self):
        """What the balancer does; None if it doesn't say."""
        return _read(self._report)


def _read(path):
    # A file that can't be read is an error, never an empty one: pods must not be forgotten because of it.
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return None
