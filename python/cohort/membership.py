"""This process in an elastic job (`cohort run --min-n`), where workers come and go: what hvd.init and hvd.elastic.run stand on.

The job goes through epochs, each with ranks of its own. A worker hears of the next one when the coordinator has formed it; then it connects,
takes over rank 0's state if it is new, and trains until somebody is lost or the ranks are to change. In a job with a fixed number of ranks
everything here is nothing.
"""
import atexit
import contextlib
import os
import signal
import sys
import threading
import warnings

from cohort import _core
from cohort.exceptions import HorovodInternalError


class Over(RuntimeError):
    """The job has been trained to its end, by others."""


_met = False
_depth = 0  # of functions with hvd.elastic.run inside each other


def meet(connect):
    """Calls connect(), which makes this process a rank; in an elastic job, of the next epoch, as often as it takes."""
    global _met
    atexit.unregister(_end_at_exit)
    atexit.register(_end_at_exit)
    while True:
        try:
            elastic = _hear()
        except Over:
            if _met:
                raise
            _go("the job was over before it could join")
        if connect():
            _met = _met or elastic
            return


def _hear():
    """Waits until there is an epoch to enter; False where the job is not elastic. HorovodInternalError tells why the job was given up."""
    word = _core.next_epoch()
    if word == "released":
        _go("it was asked to")
    if word == "over":
        raise Over("the job is over: hvd.elastic.run has ended on all ranks")
    return word == "epoch"


def _go(why):
    print(f"cohort: worker (process {os.getpid()}) leaves the job: {why}", file=sys.stderr, flush=True)
    raise SystemExit(0)


def elastic():
    """Whether this process is in a job whose workers come and go, and which is not over."""
    return _core.elastic()


def need_epoch(what):
    """HorovodInternalError where this process has left an epoch of its job and not yet met the others in the next."""
    if _core.between():
        raise HorovodInternalError(f"{what} between two epochs of an elastic job: a HorovodInternalError was not passed on to hvd.elastic.run")


def is_elastic_job():
    """Whether it ever was one."""
    return _met


def healed():
    """This process has taken over the state of rank 0."""
    if _core.elastic():
        _core.healed()


def vote(wish, what):
    """All ranks, at the same call: True when any of them, or the launcher, wants the ranks to change. A "commit" counts when it returns."""
    (wishes,), _, _ = _core.wait(_core.vote(wish, what))
    if what == "commit":
        _core.decide()
    return bool(wishes.any())


def leave_epoch():
    """Steps out of the epoch and waits for what comes next; this process still knows its old rank and size."""
    if _core.elastic():
        _core.leave_epoch()
        _hear()


def commit_counts():
    """After a vote that failed, and leave_epoch(): whether the commit counts all the same, since another rank may have seen it pass."""
    return _core.finishes()


def end():
    """The outermost function has returned here; when it has on all ranks, the job is over. Ranks stay connected."""
    if _depth > 1 or not _core.elastic():
        return
    vote(False, "end")
    _core.end_job()
    with contextlib.suppress(Over):
        _hear()


def _end_at_exit():
    """After shutdown(). A program without hvd.elastic.run has come to its end here, unless by a traceback."""
    _core.end_at_exit(getattr(sys, "last_value", None) is None)


@contextlib.contextmanager
def attended():
    """While hvd.elastic.run is at work: SIGTERM and SIGUSR1 are the notice to leave, where the program has no handler of its own."""
    global _depth
    if _met and _depth == 0 and not _core.elastic() and not _core.between():
        warnings.warn("the job was over when the first function with @hvd.elastic.run had returned on all ranks: what is lost in this one is "
                      "not replaced. Call both from one such function", stacklevel=4)
    _depth += 1
    try:
        with _notices() if _depth == 1 and _core.elastic() else contextlib.nullcontext():
            yield
    finally:
        _depth -= 1


@contextlib.contextmanager
def _notices():
    me = os.getpid()

    def asked(number, _):
        if os.getpid() == me:
            return _core.ask_to_leave(signal.Signals(number).name)
        signal.signal(number, signal.SIG_DFL)  # a forked child, which has the handler and no part in the job
        os.kill(os.getpid(), number)

    numbers = (signal.SIGTERM, signal.SIGUSR1) if threading.current_thread() is threading.main_thread() else ()
    numbers = [number for number in numbers if signal.getsignal(number) == signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, asked)
    _core.guide(True)
    try:
        yield
    finally:
        _core.guide(False)
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)
