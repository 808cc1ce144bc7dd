"""AsyncDataLoaderMixin: the same batches, read ahead."""
import threading

import pytest

from cohort.data import AsyncDataLoaderMixin, BaseDataLoader


class Numbers(BaseDataLoader):
    def __init__(self, count, fail_at=None):
        self.count, self.fail_at, self.readers = count, fail_at, set()

    def __len__(self):
        return self.count

    def _iterate(self):
        for i in range(self.count):
            if i == self.fail_at:
                raise KeyError("broken file")
            self.readers.add(threading.current_thread().name)
            yield i

    def _process_batch(self, batch):
        return batch * 10


class AsyncNumbers(AsyncDataLoaderMixin, Numbers):
    pass


def readers_running():
    return [t for t in threading.enumerate() if t.name == "cohort-loader"]


@pytest.mark.parametrize("depth", (0, 1, 4, 64))
def test_every_pass_gives_the_batches_in_order(depth):
    loader = AsyncNumbers(depth, 20)
    for _ in range(3):
        assert list(loader) == [i * 10 for i in range(20)]
    assert len(loader) == 20 and not readers_running()
    assert (loader.readers == {"cohort-loader"}) == (depth > 0)


def test_a_pass_that_is_left_ends_its_thread():
    loader = AsyncNumbers(2, 1000)
    for batch in loader:
        if batch == 50:
            break
    loader.close_async_loader()
    assert not readers_running()
    assert next(iter(loader)) == 0  # from the beginning


def test_what_the_reader_raises_is_raised_here():
    loader, seen = AsyncNumbers(4, 10, fail_at=3), []
    with pytest.raises(KeyError, match="broken file"):
        for batch in loader:
            seen.append(batch)
    assert seen == [0, 10, 20] and not readers_running()


def test_a_loader_defines_its_batches():
    with pytest.raises(NotImplementedError):
        list(BaseDataLoader())
    with pytest.raises(NotImplementedError):
        len(BaseDataLoader())
