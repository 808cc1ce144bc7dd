#!/usr/bin/env python3
"""Gloo, through torch.distributed, as a baseline: times one collective at several sizes, verifies every result, prints one JSON line per size.

    python gloo_bench.py --ranks 2 --collective all_reduce --bytes 4,1048576 --dtype f32 --op sum --seconds 0.3 [--repeats 10]

Starts its own ranks on the loopback device, one torch thread each. Method and data are those of cohort/bench/measure.h: a sample is the
slowest rank's time for a batch of about a millisecond after a barrier; element i of rank r is (i + 3r) mod 7; timed operations run on zeros.
Exit status: 0, 1 when a result is wrong, 2 usage, 3 when torch or its gloo is missing.
"""
import argparse
import json
import sys
import time

import local_ranks

PERIOD = 7
SAMPLE_SECONDS = 1e-3
MAX_BATCH = 1000
LEAST_SAMPLES, MOST_SAMPLES = 3, 5000
BLOCK_COLLECTIVES = ("reduce_scatter", "all_gather", "gather", "scatter", "all_to_all")
COLLECTIVES = BLOCK_COLLECTIVES + ("all_reduce", "broadcast", "reduce", "barrier", "send")
CHECK_CHUNK = PERIOD * 127 * 1024  # a multiple of both periods: one expected chunk serves every chunk


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--collective", default="all_reduce", choices=COLLECTIVES)
    p.add_argument("--bytes", default="4")
    p.add_argument("--dtype", default="f32", choices=("f16", "bf16", "f32", "f64", "i8", "u8", "i32", "i64"))
    p.add_argument("--op", default="sum", choices=("sum", "min", "max", "product"))
    p.add_argument("--seconds", type=float, default=0.3)
    p.add_argument("--repeats", type=int, default=0)
    return p.parse_args()


class Bench:
    def __init__(self, args, torch, dist):
        self.args, self.torch, self.dist = args, torch, dist
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.dtype = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64, "i8": torch.int8,
                      "u8": torch.uint8, "i32": torch.int32, "i64": torch.int64}[args.dtype]
        op = dist.ReduceOp
        self.op = {"sum": op.SUM, "min": op.MIN, "max": op.MAX, "product": op.PRODUCT}[args.op]

    def shape(self, size):
        """(whole, block, in, out) in elements: what measure::Shape computes."""
        collective, p = self.args.collective, self.ranks
        if collective == "barrier":
            return 0, 0, 0, 0
        whole = max(1, size // self.torch.empty(0, dtype=self.dtype).element_size())
        if collective in BLOCK_COLLECTIVES:
            whole = (whole + p - 1) // p * p
        block = whole // p
        n_in = block if collective in ("all_gather", "gather") else whole
        if collective == "scatter" and self.rank != 0:
            n_in = 0
        n_out = {"reduce_scatter": block, "scatter": block, "all_gather": whole, "all_to_all": whole}.get(collective, 0)
        if collective in ("reduce", "gather"):
            n_out = whole if self.rank == 0 else 0
        return whole, block, n_in, n_out

    def inputs(self, rank, index):
        base = (index + 3 * rank) % PERIOD
        return 1 + base % 2 if self.args.op == "product" else base

    def reduced(self, index):
        fold = {"sum": self.torch.add, "min": self.torch.minimum, "max": self.torch.maximum, "product": self.torch.mul}[self.args.op]
        total = self.inputs(0, index)
        for r in range(1, self.ranks):
            total = fold(total, self.inputs(r, index))
        return total

    def expected(self, block, index):
        collective, me = self.args.collective, self.rank
        if collective in ("all_reduce", "reduce"):
            return self.reduced(index)
        if collective == "reduce_scatter":
            return self.reduced(index + me * block)
        if collective in ("all_gather", "gather"):
            return self.inputs(index // block, index % block)
        if collective == "all_to_all":
            return self.inputs(index // block, index % block + me * block)
        if collective == "scatter":
            return self.inputs(0, index + me * block)
        return self.inputs(me if collective == "send" and me > 1 else 0, index)

    def operate(self, block, data, out):
        dist, collective = self.dist, self.args.collective
        root = self.rank == 0
        if collective == "all_reduce":
            dist.all_reduce(data, op=self.op)
        elif collective == "reduce_scatter":
            dist.reduce_scatter_tensor(out, data, op=self.op)
        elif collective == "all_gather":
            dist.all_gather_into_tensor(out, data)
        elif collective == "broadcast":
            dist.broadcast(data, 0)
        elif collective == "reduce":  # gloo reduces in place on the root, and may overwrite the others' data
            dist.reduce(data, 0, op=self.op)
        elif collective == "gather":
            dist.gather(data, list(out.split(block)) if root else None, dst=0)
        elif collective == "scatter":
            dist.scatter(out, list(data.split(block)) if root else None, src=0)
        elif collective == "all_to_all":
            dist.all_to_all_single(out, data)
        elif collective == "barrier":
            dist.barrier()
        elif self.rank < 2 and self.ranks > 1:  # send: there and back
            if root:
                dist.send(data, 1)
            dist.recv(data, 1 - self.rank)
            if not root:
                dist.send(data, 0)

    def slowest(self, values):
        t = self.torch.tensor(values, dtype=self.torch.float64)
        self.dist.all_reduce(t, op=self.dist.ReduceOp.MAX)
        return t.tolist()

    def seconds_of(self, operations, run):
        self.dist.barrier()
        start = time.perf_counter()
        for _ in range(operations):
            run()
        return (time.perf_counter() - start) / operations

    def timing(self, run):
        run()
        tries = 1
        while tries <= MAX_BATCH:
            each = self.slowest([self.seconds_of(tries, run)])[0]
            if each * tries > SAMPLE_SECONDS:
                break
            tries *= 4
        batch = min(max(int(SAMPLE_SECONDS / each), 1), MAX_BATCH)
        wanted = self.args.seconds / (each * batch)
        repeats = self.args.repeats or int(min(max(wanted, LEAST_SAMPLES), MOST_SAMPLES))
        samples = sorted(s * 1e6 for s in self.slowest([self.seconds_of(batch, run) for _ in range(repeats)]))
        return samples, batch

    def check(self, block, result):
        """(wrong elements, checksum) over all ranks."""
        torch, wrong, checksum = self.torch, 0, 0
        for start in range(0, result.numel(), CHECK_CHUNK):
            got = result[start:start + CHECK_CHUNK].to(torch.int64)
            index = torch.arange(start, start + got.numel())
            wrong += int((got != self.expected(block, index).to(self.dtype).to(torch.int64)).sum())
            checksum += int((got * (index % 127 + 1)).sum())
        both = torch.tensor([wrong, checksum % 2**32], dtype=torch.int64)
        self.dist.all_reduce(both)
        return int(both[0]), int(both[1]) % 2**32

    def measure(self, size):
        args, torch = self.args, self.torch
        whole, block, n_in, n_out = self.shape(size)
        data = torch.empty(n_in, dtype=self.dtype)
        for start in range(0, n_in, CHECK_CHUNK):
            part = data[start:start + CHECK_CHUNK]
            part.copy_(self.inputs(self.rank, torch.arange(start, start + part.numel())))
        out = torch.full((n_out,), 0, dtype=self.dtype)
        self.operate(block, data, out)
        in_place = args.collective in ("all_reduce", "broadcast", "send") or (args.collective == "reduce" and self.rank == 0)
        wrong, checksum = self.check(block, data if in_place else out)
        if wrong:
            sys.exit(f"gloo_bench: {args.collective}: {wrong} wrong elements")
        data.fill_(0)
        samples, batch = self.timing(lambda: self.operate(block, data, out))
        trips = 2 if args.collective == "send" else 1
        if self.rank == 0:
            line = {"collective": args.collective, "ranks": self.ranks, "bytes": whole * data.element_size(), "dtype": args.dtype, "op": args.op,
                    "median_us": percentile(samples, 0.5) / trips, "low_us": percentile(samples, 0.1) / trips,
                    "high_us": percentile(samples, 0.9) / trips, "repeats": len(samples), "batch": batch, "checksum": checksum}
            print(json.dumps(line), flush=True)


def percentile(ordered, share):
    at = share * (len(ordered) - 1)
    lower = int(at)
    upper = min(lower + 1, len(ordered) - 1)
    return ordered[lower] + (at - lower) * (ordered[upper] - ordered[lower])


def work(args):
    found = local_ranks.gloo("gloo_bench") if local_ranks.die_with_parent() else None
    if found is None:
        return 3
    torch, dist = found
    bench = Bench(args, torch, dist)
    for size in args.bytes.split(","):
        bench.measure(int(size))
    local_ranks.leave(dist)
    return 0


if __name__ == "__main__":
    options = parse()
    sys.exit(work(options) if local_ranks.is_rank() else local_ranks.launch(options.ranks))
