"""FSDP2: fully_shard on every layer of a Transformer, and on the whole.

    cohort run -n 2 -- python fsdp2.py cohort
"""
import sys

import torch
import torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.functional import cross_entropy

WORDS, LENGTH, WIDTH = 64, 16, 32


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = torch.nn.Embedding(WORDS, WIDTH), torch.nn.Embedding(LENGTH, WIDTH)
        self.layers = torch.nn.ModuleList(torch.nn.TransformerEncoderLayer(WIDTH, 2, 4 * WIDTH, 0.0, batch_first=True) for _ in range(3))
        self.head = torch.nn.Linear(WIDTH, WORDS)

    def forward(self, tokens):
        hidden = self.words(tokens) + self.places(torch.arange(tokens.shape[1]))
        for layer in self.layers:
            hidden = layer(hidden)
        return self.head(hidden)


def train(precision, shared):
    torch.manual_seed(7)
    model = Model()
    policy = MixedPrecisionPolicy(param_dtype=precision, reduce_dtype=torch.float32)
    for layer in model.layers:
        fully_shard(layer, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    if shared:  # buffers that the ranks of a host reduce in place
        model.set_allocate_memory_from_process_group_for_comm(True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(6):
        tokens = (torch.randint(WORDS, (8, 1), generator=generator) + torch.arange(LENGTH + 1)) % WORDS
        loss = cross_entropy(model(tokens[:, :-1]).flatten(0, 1).float(), tokens[:, 1:].flatten())
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).full_tensor()
        optimizer.step()
        optimizer.zero_grad()
        losses = [torch.zeros(()) for _ in range(dist.get_world_size())]
        dist.all_gather(losses, loss.detach())
        if dist.get_rank() == 0:
            print("loss", [one.item() for one in losses], "norm", norm.item(), flush=True)


if __name__ == "__main__":
    dist.init_process_group(sys.argv[1])
    train(torch.float32, shared=False)
    train(torch.bfloat16, shared=sys.argv[1] == "cohort")
    dist.destroy_process_group()
