"""What the tests of DistributedOptimizer train: a small model, alone on all data or together on shares of it."""
import torch

import cohort.torch as hvd

EVERY = (1, 2, 3, 4)
SHARE = 4  # samples per rank and backward pass


def setup_rank():
    hvd.init(process_sets="dynamic")


teardown_rank = hvd.shutdown


def net():
    torch.manual_seed(5)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))


def data(count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, 6, generator=generator), torch.randn(count, 3, generator=generator)


def loss_of(model, x, y):
    return torch.nn.functional.mse_loss(model(x), y)


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def train_alone(steps, passes=1, ways=None):
    """One process that sees what all ranks see; `passes` shares add up as they do on a rank."""
    model, ways = net(), ways or hvd.size()
    optimizer = sgd(model)
    for step in range(steps):
        optimizer.zero_grad()
        x, y = data(SHARE * passes * ways, seed=step)
        for part in range(passes * ways):
            chosen = slice(part * SHARE, (part + 1) * SHARE)
            (loss_of(model, x[chosen], y[chosen]) / ways).backward()
        optimizer.step()
    return model


def train_together(steps, passes=1, finish=None, **options):
    model = net()
    optimizer = hvd.DistributedOptimizer(sgd(model), named_parameters=model.named_parameters(), backward_passes_per_step=passes, **options)
    for step in range(steps):
        optimizer.zero_grad()
        x, y = data(SHARE * passes * hvd.size(), seed=step)
        for part in range(hvd.rank() * passes, (hvd.rank() + 1) * passes):
            chosen = slice(part * SHARE, (part + 1) * SHARE)
            loss_of(model, x[chosen], y[chosen]).backward()
        finish(optimizer, model) if finish else optimizer.step()
    return model


def alike(model, other, **tolerance):
    for (name, p), q in zip(model.named_parameters(), other.parameters()):
        torch.testing.assert_close(p, q, msg=lambda text: f"{name}: {text}", **tolerance)
