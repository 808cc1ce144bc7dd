"""prescale_factor, postscale_factor and Average have Horovod's bits: factors in the tensor's own type, each product rounded by itself.

The reference below is the closed form in torch, one rounding a line; every rank knows every rank's values.
"""
import torch

import cohort.torch as hvd
from launch import ranks

setup_rank, teardown_rank = hvd.init, hvd.shutdown

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
FACTORS = [(0.1, 1.0), (1.0, 0.3), (1.0 / 3, 3.0), (0.7, 1.3)]


def scaled(x, factor):
    if factor == 1.0:
        return x
    if x.dtype == torch.float64:
        return x * factor
    if x.is_floating_point():  # 16-bit ones are widened and rounded again
        return (x.to(torch.float32) * torch.tensor(factor, dtype=torch.float64).to(torch.float32)).to(x.dtype)
    return (x.to(torch.float64) * factor).to(x.dtype)  # truncated


def total(parts):
    """Rounded at each addition, in the order that docs/architecture.md gives (Same bits)."""
    if len(parts) == 1:
        return parts[0]
    left = 1 << (len(parts) - 1).bit_length() - 1
    return total(parts[:left]) + total(parts[left:])


def reduced(values, op, pre, post):
    if op == hvd.Average:
        post /= len(values)
    return scaled(total([scaled(x, pre) for x in values]), post)


def values_of(dtype, count=999, seed=0):
    generator = torch.Generator().manual_seed(seed)
    if dtype.is_floating_point:
        return [torch.randn(count, generator=generator, dtype=torch.float64).to(dtype) for _ in range(hvd.size())]
    return [torch.randint(0, 21, (count,), generator=generator).to(dtype) for _ in range(hvd.size())]


def same(got, expected, what):
    assert got.dtype == expected.dtype and torch.equal(got, expected), f"{what}: {(got != expected).sum()} of {got.numel()} differ"


@ranks(1, 2, 3)
def test_every_reduction_has_the_bits_of_the_closed_form():
    for dtype in FLOATS + INTEGERS:
        values, mine = values_of(dtype), values_of(dtype)[hvd.rank()]
        rows = torch.tensor_split(torch.arange(mine.numel()), hvd.size())[hvd.rank()]
        for op in (hvd.Sum, hvd.Average):
            for pre, post in [(1.0, 1.0), *FACTORS]:
                expected, what = reduced(values, op, pre, post), f"{dtype} {op} {pre} {post}"
                factors = dict(op=op, prescale_factor=pre, postscale_factor=post)
                same(hvd.allreduce(mine, **factors), expected, what)
                same(hvd.allreduce_(mine.clone(), **factors), expected, what)
                same(hvd.reducescatter(mine, **factors), expected[rows], what)
                for group in (hvd.grouped_allreduce([mine, mine[:7]], **factors),
                              hvd.grouped_allreduce_([mine.clone(), mine[:7].clone()], **factors)):
                    same(group[0], expected, what)
                    same(group[1], expected[:7], what)
                same(hvd.grouped_reducescatter([mine, mine], **factors)[1], expected[rows], what)


@ranks(2, 3)
def test_a_group_of_several_types_scales_each_in_its_own():
    for op in (hvd.Sum, hvd.Average):
        for pre, post in FACTORS:
            types = [torch.float32, torch.float64, torch.int32, torch.float16, torch.float32]
            several = [values_of(dtype, seed=i) for i, dtype in enumerate(types)]
            group = hvd.grouped_allreduce([values[hvd.rank()] for values in several], op=op, prescale_factor=pre, postscale_factor=post)
            for values, got in zip(several, group):
                same(got, reduced(values, op, pre, post), f"{got.dtype} in a group")


@ranks(2, 3)
def test_large_tensors_and_fused_ones_scale_alike():
    for count in (400_000, 70):  # above what is packed into one buffer, and below
        many = [values_of(torch.float32, count, seed) for seed in range(4)]
        handles = [hvd.allreduce_async(values[hvd.rank()], name=f"{count} {i}", prescale_factor=0.1, postscale_factor=0.7)
                   for i, values in enumerate(many)]
        for values, handle in zip(many, handles):
            same(hvd.synchronize(handle), reduced(values, hvd.Average, 0.1, 0.7), f"{count} elements")


@ranks(2)
def test_the_values_above_show_where_it_is_rounded():
    """Else the claims above would hold for other orders too."""
    a, b = values_of(torch.float32)
    expected = reduced([a, b], hvd.Sum, 0.1, 1.0)
    assert not torch.equal(expected, scaled(a + b, 0.1)), "scaled after the sum"
    exact = [(x.double() * 0.1).float() for x in (a, b)]
    assert not torch.equal(expected, exact[0] + exact[1]), "by the factor in double"
    assert not torch.equal(expected, (a.double() * 0.1 + b.double() * 0.1).float()), "rounded after the sum"
    c, d = values_of(torch.int32)
    assert not torch.equal(reduced([c, d], hvd.Sum, 0.3, 1.0), scaled(c + d, 0.3)), "integers truncated after the sum"
