"""The end of a program by a signal."""

import signal
import threading

SIGNALS = {signal.SIGTERM, signal.SIGINT}


def on_signal(end):
    """Calls `end` in a thread of its own when SIGTERM or SIGINT arrives. To be called before any other thread starts.

    This is not a signal handler. Python runs a signal handler in the main thread, between any two instructions, so the
    handler must not take a lock that the main thread may hold. `threading.Event.set` takes the lock that `Event.wait`
    takes: a handler that calls it can wait forever. A thread has no such restriction.
    """
    # Threads inherit this, so that no other thread gets the signals.
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)

    def wait():
        signal.sigwait(SIGNALS)
        end()

    threading.Thread(target=wait, daemon=True).start()
