"""A stand-in for a load balancer: this program writes its backends to one file, and it reports its state in another.

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
        # Calls for several pods arrive at the same time, and only one may change the file.
        self._changing = threading.Lock()

    def set(self, uid, backend):
        """Sets the backend of the pod `uid`, or removes it (None). Returns the generation that contains the change.

        Writes nothing if there is no change, so that a repeated question has no effect.
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
            # Replace the file atomically, so that a reader sees either the old or the new content.
            new = f"{self._backends}.new"
            with open(new, "w", encoding="utf-8") as file:
                json.dump(wanted, file, indent=2)
            os.replace(new, self._backends)
            return wanted["generation"]

    def report(self):
        """Returns the state of the balancer, or None if it does not report it."""
        return _read(self._report)


def _read(path):
    # An invalid file is an error and does not count as empty, because that would remove pods from the backends.
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return None
