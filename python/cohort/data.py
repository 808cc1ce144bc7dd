"""Loaders that prepare batches in a thread of their own while the step runs.

    class Loader(AsyncDataLoaderMixin, MyLoader):      # MyLoader: a BaseDataLoader
        ...
    for batch in Loader(async_loader_queue_size=8, ...):
"""
import queue
import threading


class BaseDataLoader:
    """What a loader has: _iterate() yields the batches of one pass, _process_batch() may change each."""

    def __len__(self):
        """Batches per pass."""
        raise NotImplementedError("a data loader defines __len__()")

    def _iterate(self):
        raise NotImplementedError("a data loader defines _iterate(), which yields batches")

    def _process_batch(self, batch):
        return batch

    def __iter__(self):
        for batch in self._iterate():
            yield self._process_batch(batch)


class _Pass:
    """One pass over the data: a thread fills a bounded queue; close() ends it at once, wherever it is."""

    def __init__(self, batches, depth):
        self._batches = batches
        self._queue = queue.Queue(depth)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._fill, name="cohort-loader", daemon=True)
        self._thread.start()

    def _fill(self):
        try:
            for batch in self._batches:
                if not self._put(("batch", batch)):
                    return
            self._put(("end", None))
        except BaseException as error:  # raised where the batch is asked for
            self._put(("error", error))

    def _put(self, item):
        while not self._closed.is_set():
            try:
                self._queue.put(item, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def __iter__(self):
        while not self._closed.is_set():
            try:
                kind, value = self._queue.get(timeout=0.1)
            except queue.Empty:
                continue
            if kind == "error":
                raise value
            if kind == "end":
                return
            yield value

    def close(self):
        self._closed.set()
        self._thread.join()


class AsyncDataLoaderMixin:
    """Put it before a BaseDataLoader in the list of bases: batches are read ahead by a thread, at most `async_loader_queue_size` of them.

    A size of 0 reads them in the caller's thread. What the thread raises is raised where the batch would have come.
    """

    def __init__(self, async_loader_queue_size=64, *args, **kwargs):
        self.async_loader_queue_size = async_loader_queue_size
        self._pass = None
        super().__init__(*args, **kwargs)

    def close_async_loader(self):
        """Ends the thread. Called by itself when a pass ends or another begins."""
        if self._pass is not None:
            self._pass.close()
            self._pass = None

    def __iter__(self):
        if self.async_loader_queue_size <= 0:
            yield from super().__iter__()
            return
        self.close_async_loader()
        mine = self._pass = _Pass(self._iterate(), self.async_loader_queue_size)
        try:
            for batch in mine:
                yield self._process_batch(batch)
        finally:
            mine.close()

    def __del__(self):
        if getattr(self, "_pass", None) is not None:
            self._pass.close()
