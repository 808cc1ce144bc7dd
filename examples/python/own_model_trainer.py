#!/usr/bin/env python3
"""A torch module and a data set of one's own, trained by cohort.Trainer on any number of ranks.

    python own_model_trainer.py                                       one rank
    cohort run -n 2 own_model_trainer.py                              two
    cohort run -n 2 own_model_trainer.py --sync "zero(stage=3)"       parameters, gradients and optimizer state sharded over them
    cohort run -n 2 own_model_trainer.py --sync "local_sgd(h=8)"      ranks that train by themselves and average every 8 steps
    cohort run -n 2 own_model_trainer.py --codec int8                 gradients in fewer bytes
    cohort run -n 3 --min-n 2 own_model_trainer.py                    workers may be lost: the others go on

Run again it resumes from its newest checkpoint; --out says where.
"""
import argparse

import torch
from torch import nn

import cohort


class Spirals(torch.utils.data.Dataset):
    """Points of two spirals, made up: which of them is it?"""

    def __init__(self, count, seed):
        random = torch.Generator().manual_seed(seed)
        self.label = torch.arange(count) % 2
        along = torch.rand(count, generator=random).sqrt() * 2 * torch.pi
        angle = along + self.label * torch.pi
        self.points = torch.stack([along * angle.cos(), along * angle.sin()], 1) / 6
        self.points += 0.02 * torch.randn(count, 2, generator=random)

    def __len__(self):
        return len(self.label)

    def __getitem__(self, index):
        return self.points[index], self.label[index]


def network(width):
    layers = [nn.Linear(2, width), nn.ReLU()]
    for _ in range(2):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, 2))


def confidence(outputs, labels):
    """A metric of one's own: the probability of the right class, for each sample."""
    return outputs.softmax(1)[torch.arange(len(labels)), labels]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sync", default="all_reduce(op=sum)")
    parser.add_argument("--codec", default="none")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--out", default="runs/spirals")
    options = parser.parse_args()

    model = network(64)
    settings = {
        "out": options.out,
        "epochs": options.epochs,
        "sync": options.sync,
        "codec": options.codec,
        "optimizer": "adam(lr=5e-3)",
        "data": {"batch": 32},
    }
    trainer = cohort.Trainer(model, Spirals(4000, seed=1), settings, test=Spirals(500, seed=2), loss=nn.functional.cross_entropy,
                             metrics={"confidence": confidence})
    summary = trainer.run()

    other = Spirals(500, seed=3)
    right = (trainer.predict(other.points).argmax(1) == other.label).float().mean()  # every rank has the whole model
    if trainer.rank == 0:
        print(f"accuracy on other points: {100 * right:.1f} %, confidence {summary.metrics['confidence']:.3f}, "
              f"checkpoint {summary.checkpoint}")


if __name__ == "__main__":
    main()
