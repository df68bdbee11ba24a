"""Runs a program that ends on SIGTERM, and sends it SIGTERM while it holds a lock.

    python interrupted.py PROGRAM ARGUMENT...

`threading.Event.wait` takes a lock, and `Event.set` takes the same lock. The signal arrives each time the program itself,
not a library, has taken that lock to wait. A signal handler that calls `set` then waits for the lock forever.
"""

import os
import runpy
import signal
import sys
import threading

original = threading.Condition.wait


def wait(condition, timeout=None):
    event_wait, caller = sys._getframe(1), sys._getframe(2)
    if event_wait.f_code is threading.Event.wait.__code__ and caller.f_globals["__name__"] == "__main__":
        os.kill(os.getpid(), signal.SIGTERM)
    return original(condition, timeout)


threading.Condition.wait = wait
del sys.argv[0]
# Where Python looks for modules when it runs the program itself.
sys.path[0] = os.path.dirname(sys.argv[0])
runpy.run_path(sys.argv[0], run_name="__main__")
