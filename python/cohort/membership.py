"""This process in an elastic job (`cohort run --min-n`), where workers come and go: used by hvd.init and hvd.elastic.run.

The job goes through epochs, each with ranks of its own. A worker gets the next one when the coordinator has formed it; then it connects,
receives rank 0's state if it is new, and trains until a rank is lost or the ranks are to change. In a job with a fixed number of ranks
nothing here has an effect.
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


class JobOver(RuntimeError):
    """The job has been trained to its end, by others."""


_joined = False
_depth = 0  # of functions with hvd.elastic.run inside each other


def connect(init):
    """Calls init(), which makes this process a rank; in an elastic job, of the next epoch, as often as it takes."""
    global _joined
    atexit.unregister(_end_at_exit)
    atexit.register(_end_at_exit)
    while True:
        try:
            elastic = _await_epoch()
        except JobOver:
            if _joined:
                raise
            _exit_job("the job was over before it could join")
        if init():
            _joined = _joined or elastic
            return


def _await_epoch():
    """Waits until there is an epoch to enter; False where the job is not elastic. HorovodInternalError: the job was given up, with the reason."""
    answer = _core.next_epoch()
    if answer == "released":
        _exit_job("it was asked to")
    if answer == "over":
        raise JobOver("the job is over: hvd.elastic.run has ended on all ranks")
    return answer == "epoch"


def _exit_job(why):
    print(f"cohort: worker (process {os.getpid()}) leaves the job: {why}", file=sys.stderr, flush=True)
    raise SystemExit(0)


def elastic():
    """Whether this process is in a job whose workers come and go, and which is not over."""
    return _core.elastic()


def need_epoch(what):
    """HorovodInternalError where this process has left an epoch of its job and not yet connected to the others in the next."""
    if _core.between_epochs():
        raise HorovodInternalError(f"{what} between two epochs of an elastic job: a HorovodInternalError was not passed on to hvd.elastic.run")


def is_elastic_job():
    """Whether this process ever was in an elastic job."""
    return _joined


def state_synced():
    """This process has received the state of rank 0."""
    if _core.elastic():
        _core.state_synced()


def vote(wish, what):
    """All ranks, at the same call: True when any of them, or the launcher, wants the ranks to change. A "commit" counts when it returns."""
    outcome = _core.wait(_core.vote(wish, what))
    if outcome is None:
        raise HorovodInternalError(f"hvd.shutdown() was called on this rank, by another thread, during {what}()")
    (wishes,), _, _ = outcome
    if what == "commit":
        _core.decide()
    return bool(wishes.any())


def leave_epoch():
    """Leaves the epoch and waits for the next one; this process still knows its old rank and size."""
    if _core.elastic():
        _core.leave_epoch()
        _await_epoch()


def commit_counts():
    """After a vote that failed, and leave_epoch(): whether the commit counts all the same, since another rank may have seen it pass."""
    return _core.commit_counts()


def end():
    """The outermost function has returned here; when it has on all ranks, the job is over. Ranks stay connected."""
    if _depth > 1 or not _core.elastic():
        return
    vote(False, "end")
    _core.end_job()
    with contextlib.suppress(JobOver):
        _await_epoch()


def _end_at_exit():
    """After shutdown(). A program without hvd.elastic.run has come to its end here, unless by a traceback."""
    _core.end_at_exit(getattr(sys, "last_value", None) is None)


@contextlib.contextmanager
def elastic_run():
    """While hvd.elastic.run is at work: SIGTERM and SIGUSR1 are the notice to leave, where the program has no handler of its own."""
    global _depth
    if _joined and _depth == 0 and not _core.elastic() and not _core.between_epochs():
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
    _core.set_elastic_run(True)
    try:
        yield
    finally:
        _core.set_elastic_run(False)
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)
