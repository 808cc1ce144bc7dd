#!/usr/bin/env python3
"""Training on a GPU beside torch: bench/gpu.py [folder of programs] [--rounds n] [--batch n] [--steps n]

1. Updates: bytes a second of Cohort's kernels, of torch's fused AdamW and of a copy on the device.
2. GPT-2 of 124 million parameters, window 1024, bf16 autocast with fp32 parameters, AdamW: tokens a second of `cohort train`, of torch
   eager and of torch.compile, in turns on the same machine in the same minutes; medians over the rounds.
Both read random bytes as text, so that loading costs nothing: this measures steps, and nothing is learned.
"""
import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import torch.nn.functional as F

VOCAB, CONTEXT, WIDTH, HEADS, LAYERS = 50304, 1024, 768, 12, 12


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
        self.qkv, self.proj = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.up, self.down = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (y.view(b, t, HEADS, WIDTH // HEADS).transpose(1, 2) for y in self.qkv(self.norm1(x)).split(WIDTH, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, WIDTH)
        x = x + self.proj(y)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Gpt(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = torch.nn.Embedding(VOCAB, WIDTH), torch.nn.Embedding(CONTEXT, WIDTH)
        self.blocks = torch.nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = torch.nn.LayerNorm(WIDTH), torch.nn.Linear(WIDTH, VOCAB, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def seconds_of(call, rounds=9, each=10):
    taken = []
    for _ in range(rounds + 1):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(each):
            call()
        torch.cuda.synchronize()
        taken.append((time.perf_counter() - start) / each)
    return statistics.median(taken[1:])


def torch_updates(count):
    p = torch.nn.Parameter(torch.full((count,), 0.01, device="cuda"))
    p.grad = torch.full_like(p, 0.02)
    for name, optimizer, moved in (("torch fused adamw", torch.optim.AdamW([p], lr=1e-6, fused=True), 28),):
        seconds = seconds_of(optimizer.step)
        yield {"what": name, "ms": 1e3 * seconds, "tb_per_s": moved * count / seconds / 1e12}


def torch_steps(compiled, batch, steps):
    """Tokens a second of the second half of the steps."""
    torch.manual_seed(1)
    net = Gpt().cuda()

    def loss_of(inputs, labels):
        return F.cross_entropy(net(inputs).view(-1, VOCAB).float(), labels.reshape(-1))

    forward = torch.compile(loss_of) if compiled else loss_of
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-4, weight_decay=0.1, fused=True)
    ids = torch.randint(0, 256, (batch, CONTEXT + 1), device="cuda")
    taken = []
    for step in range(steps):
        torch.cuda.synchronize()
        start = time.perf_counter()
        with torch.autocast("cuda", torch.bfloat16):
            loss = forward(ids[:, :-1], ids[:, 1:])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        torch.cuda.synchronize()
        taken.append(time.perf_counter() - start)
    return batch * CONTEXT / statistics.median(taken[steps // 2:])


def cohort_steps(programs, text, batch, steps, folder):
    settings = {"model": f"gpt(vocab={VOCAB}, context={CONTEXT}, d={WIDTH}, heads={HEADS}, layers={LAYERS})",
                "data.train": f"text(file={text}, context={CONTEXT})", "data.test": "", "data.transforms": "", "data.batch": batch,
                "epochs": 0, "steps": steps, "optimizer": "adamw(lr=3e-4, weight_decay=0.1)", "precision": "bf16", "device": "cuda",
                "checkpoint.resume": "never", "checkpoint.every_epochs": 0, "observe.every_steps": 1, "observe.report": "false"}
    command = [f"{programs}/cohort", "train", "-n", "1", "--out", folder]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        sys.exit(f"cohort train failed: {done.stderr[-2000:]}")
    with open(os.path.join(folder, "metrics.jsonl")) as lines:
        rates = [row["samples_per_s"] for row in map(json.loads, lines) if "samples_per_s" in row]
    return CONTEXT * statistics.median(rates[len(rates) // 2:])


words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
words.add_argument("programs", nargs="?", default="build/bin")
words.add_argument("--rounds", type=int, default=5)
words.add_argument("--batch", type=int, default=32)
words.add_argument("--steps", type=int, default=30)
words.add_argument("--elements", type=int, default=1 << 28, help="of the updates")
words.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
asked = words.parse_args()
if not torch.cuda.is_available():
    sys.exit("bench/gpu.py: torch finds no GPU here")
print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
lines = subprocess.run([f"{asked.programs}/gpu_update_bench", str(asked.elements)], capture_output=True, text=True, check=True, timeout=300)
for row in [json.loads(line) for line in lines.stdout.splitlines()] + list(torch_updates(asked.elements)):
    print(f"{row['what']:20} {row['ms']:8.3f} ms {row['tb_per_s']:6.2f} TB/s", flush=True)
torch.cuda.empty_cache()

found = {"cohort train": [], "torch eager": []} | ({} if asked.no_compile else {"torch.compile": []})
with tempfile.TemporaryDirectory() as folder:
    text = os.path.join(folder, "text")
    with open(text, "wb") as file:
        file.write(random.Random(1).randbytes(4 << 20))
    for turn in range(asked.rounds):
        found["cohort train"].append(cohort_steps(asked.programs, text, asked.batch, asked.steps, os.path.join(folder, str(turn))))
        found["torch eager"].append(torch_steps(False, asked.batch, asked.steps))
        torch.cuda.empty_cache()
        if not asked.no_compile:
            found["torch.compile"].append(torch_steps(True, asked.batch, asked.steps))
            torch.cuda.empty_cache()
for name, rates in found.items():
    print(f"GPT-2 124M, {asked.batch} x {CONTEXT}: {name:14} {statistics.median(rates) / 1e3:7.1f}k tokens/s "
          f"[{min(rates) / 1e3:.1f}k..{max(rates) / 1e3:.1f}k] of {len(rates)} runs")
