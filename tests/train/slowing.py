"""A process that is slower than it could be: it is stopped and woken up again, many times a step, so that it computes 1/factor of the time."""
import os
import signal
import threading

TURN = 0.01  # seconds from one stop to the next
# Steps of some 50 ms on one core: many turns each. Four ranks on two cores share them.
LONG_STEPS = {"model": "mlp(in=784, hidden=1024x1024, out=10)", "data__train": "synthetic(samples=20000)", "data__test": "", "data__batch": 128,
              "epochs": 0, "threads": 1, "checkpoint__every_epochs": 0}


class Slowed:
    def __init__(self, pid, factor):
        self.pid, self.over = pid, threading.Event()
        self.runs, self.rests = TURN / factor, TURN - TURN / factor
        self.thread = threading.Thread(target=self.turn)

    def turn(self):
        try:
            while not self.over.wait(self.runs):
                os.kill(self.pid, signal.SIGSTOP)
                self.over.wait(self.rests)
                os.kill(self.pid, signal.SIGCONT)
        except ProcessLookupError:
            pass

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        try:
            os.kill(self.pid, signal.SIGCONT)
        except ProcessLookupError:
            pass


def namings(metrics, rank=None):
    """(step, rank, slow) of every time that a rank was called slow, or no longer slow."""
    return [(m["step"], m["slow_rank"], m["slow"]) for m in metrics if "slow_rank" in m and rank in (None, m["slow_rank"])]
