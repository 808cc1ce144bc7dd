"""ElasticSampler: each sample of an epoch once, divided among the ranks, also when the epoch is interrupted and the ranks change."""
import math
import random

import torch.utils.data

from cohort.torch.mpi_ops import rank, size


class ElasticSampler(torch.utils.data.Sampler):
    """A sampler for `DataLoader(dataset, sampler=...)` that knows how much of the epoch is done.

    Put it into TorchState, call `record_batch()` after each step, and after an interruption every rank goes on with what no rank has seen.
    The order depends on seed and epoch only, so all ranks agree on it. The last samples are repeated where ranks do not divide what is left.
    """

    def __init__(self, dataset, shuffle: bool = True, seed: int = 0):
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self.processed_num = 0  # samples of this epoch that all ranks together have seen
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Begins an epoch: another order, nothing seen yet."""
        self.epoch = epoch
        self.processed_num = 0
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Every rank has made a step on `batch_size` samples. Takes effect on the order at the next reset()."""
        self.processed_num = min(self.processed_num + batch_size * self.num_replicas, len(self.dataset))

    def state_dict(self) -> dict:
        """Epoch and count: with the seed, all there is to know."""
        return dict(epoch=self.epoch, processed_num=self.processed_num)

    def load_state_dict(self, state_dict: dict) -> None:
        """Goes on at the position of the state."""
        self.epoch = state_dict["epoch"]
        self.processed_num = state_dict["processed_num"]
        self.reset()

    def reset(self):
        """Divides what is left of the epoch among the ranks there are now."""
        self.num_replicas = size()
        self.rank = rank()
        order = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(f"{self.seed}/{self.epoch}").shuffle(order)
        self.remaining_indices = order[self.processed_num:]
        self.num_samples = math.ceil(len(self.remaining_indices) / self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self):
        left = self.remaining_indices
        repeats = math.ceil(self.total_size / len(left)) if left else 0
        return iter((left * repeats)[self.rank:self.total_size:self.num_replicas])

    def __len__(self):
        return self.num_samples
