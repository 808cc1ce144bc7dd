#!/usr/bin/env python3
"""torch's own ways of training a Transformer on several CPU ranks over gloo, as baselines of `cohort bench step`: prints one JSON line.

    python torch_sharded.py --how fsdp2 --ranks 2 --batch 4 --tokens 128 --warm 2 --steps 5 --lr 3e-4

    ddp    DistributedDataParallel and AdamW                     every rank holds everything
    zero1  DistributedDataParallel and ZeroRedundancyOptimizer   the optimizer's state is shared out
    fsdp2  fully_shard of every block and of the whole           parameters, gradients and state are shared out

Starts its own ranks on the loopback device, one thread each. The network (GPT-2's layout: 16 layers, width 512, 50.8 M parameters), the tokens,
batch, rate and number of steps are those of the other baselines (cohort/cli/worker/bench_step.cc).
Exit status: 0, 2 usage, 3 when torch or its gloo is missing.
"""
import argparse
import os
import sys
import time

import local_ranks

VOCABULARY, CONTEXT, WIDTH, HEADS, LAYERS = 256, 128, 512, 8, 16
SAMPLES = 10000
DEVIATION = 0.02


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--how", default="fsdp2", choices=("ddp", "zero1", "fsdp2"))
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--tokens", type=int, default=CONTEXT)
    p.add_argument("--warm", type=int, default=2)
    p.add_argument("--steps", type=int, default=5)
    p.add_argument("--lr", type=float, default=3e-4)
    p.add_argument("--seed", type=int, default=1)
    return p.parse_args()


def gpt(torch):
    """Pre-norm blocks, learned positions, causal attention, an output layer of its own; weights start as GPT-2's do."""
    nn, functional = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.c_attn, self.c_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.c_fc, self.c_out = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x):
            n, t, d = x.shape
            parts = (part.view(n, t, HEADS, d // HEADS).transpose(1, 2) for part in self.c_attn(self.ln_1(x)).split(d, 2))
            seen = functional.scaled_dot_product_attention(*parts, is_causal=True).transpose(1, 2).reshape(n, t, d)
            x = x + self.c_proj(seen)
            return x + self.c_out(functional.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
            self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
            self.ln_f, self.lm_head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

        def forward(self, ids):
            x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
            for block in self.blocks:
                x = block(x)
            return self.lm_head(self.ln_f(x))

    net = Gpt()
    for name, module in net.named_modules():
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, 0, DEVIATION / (2 * LAYERS)**0.5 if name.endswith(("c_proj", "c_out")) else DEVIATION)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
    return net


def token_rows(torch, args):
    """As cohort/data/datasets/synthetic.cc: next = (5 token + 7) mod vocabulary nine times out of ten, else uniform."""
    dice = torch.Generator().manual_seed(args.seed)
    rows = torch.randint(VOCABULARY, (SAMPLES, args.tokens + 1), generator=dice)
    jump = torch.randint(10, (SAMPLES, args.tokens + 1), generator=dice) == 0
    for i in range(1, args.tokens + 1):
        rows[:, i] = torch.where(jump[:, i], rows[:, i], (5 * rows[:, i - 1] + 7) % VOCABULARY)
    return rows.to(torch.uint8)


def batches(torch, args, rows):
    """Endless: every epoch another order, the same on all ranks, cut into global batches and those into contiguous parts."""
    rank, whole = int(os.environ["RANK"]), args.ranks * args.batch
    for epoch in range(10**9):
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(args.seed * 1000003 + epoch))
        for at in range(0, len(rows) - whole + 1, whole):
            picked = rows[order[at + rank * args.batch:at + (rank + 1) * args.batch]].long()
            yield picked[:, :-1], picked[:, 1:]


def wrap(torch, args, model):
    """The parallel model and its optimizer, with the settings their manuals recommend for speed."""
    if args.how == "fsdp2":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        mesh = init_device_mesh("cpu", (args.ranks,))
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        return model, torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
    ddp = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True, static_graph=True, broadcast_buffers=False)
    if args.how == "ddp":
        return ddp, torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
    from torch.distributed.optim import ZeroRedundancyOptimizer
    return ddp, ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW, parameters_as_bucket_view=True, lr=args.lr,
                                        fused=True)


def train(torch, dist, args):
    before = local_ranks.resident_bytes()
    torch.manual_seed(args.seed)
    parallel, adam = wrap(torch, args, gpt(torch))
    source, losses, start, most = batches(torch, args, token_rows(torch, args)), [], 0.0, 0
    for step in range(args.warm + args.steps):
        if step == args.warm:
            dist.barrier()
            start = time.perf_counter()
        inputs, wanted = next(source)
        loss = torch.nn.functional.cross_entropy(parallel(inputs).flatten(0, 1), wanted.flatten())
        if step < args.warm:
            most = max(most, local_ranks.resident_bytes())
        loss.backward()
        if step < args.warm:
            most = max(most, local_ranks.resident_bytes())
        adam.step()
        adam.zero_grad()
        losses.append(loss.item())
    dist.barrier()
    return time.perf_counter() - start, losses, most - before


def work(args):
    found = local_ranks.gloo("torch_sharded") if local_ranks.die_with_parent() else None
    if found is None:
        return 3
    torch, dist = found
    torch.set_flush_denormal(True)
    seconds, losses, most = train(torch, dist, args)
    local_ranks.report(torch, dist, args, seconds, losses, peak_bytes=most)
    return 0


if __name__ == "__main__":
    options = parse()
    sys.exit(work(options) if local_ranks.is_rank() else local_ranks.launch(options.ranks, OMP_WAIT_POLICY="PASSIVE"))
