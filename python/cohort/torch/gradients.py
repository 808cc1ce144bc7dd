"""How gradients are reduced: each when backward has added to it for the last time of a step, alone or with its group.

Owner: a DistributedOptimizer. Threads: hooks run in autograd's threads, one backward at a time; everything else in the caller's.
A rank whose backward did not reach a parameter gives zeros for it, since the other ranks wait for its share.
"""
import threading
import weakref
from dataclasses import dataclass
from typing import Any

import torch

from cohort import _core
from cohort.codecs import CodedGradients, check_momentum
from cohort.torch.compression import CodecCompressor, NoneCompressor
from cohort.torch.mpi_ops import Average, allreduce_async_, grouped_allreduce_async_, rank, sparse_allreduce_async, synchronize
from cohort.torch.process_sets import _id_of


@dataclass
class _PendingGradient:
    """A gradient in flight: what was sent, how it is unpacked."""

    sent: Any  # the tensor that is reduced in place; None for a sparse one
    context: Any  # of the compressor
    handle: Any  # an int, or a callable for a sparse gradient; shared by a group


class GradientReducer:
    """Counts backward passes per parameter, submits gradients, puts the reduced ones in their place."""

    def __init__(self, names, parameters, compression, passes, op, predivide, groups, sparse_as_dense, process_set, rate_of):
        self.passes = passes
        self._names = names
        self._parameters = parameters
        self._codec = CodedGradients(compression.spec, compression.seed) if isinstance(compression, CodecCompressor) else None
        self._compression = NoneCompressor if self._codec else compression
        self._rate_of = rate_of  # a parameter's (group, learning rate)
        self.loss_scale = 1.0
        self._op = op
        self._scales = dict(prescale_factor=1.0 / predivide, postscale_factor=predivide) if op == Average else {}
        self._sparse_as_dense = sparse_as_dense
        self._process_set = process_set
        self._group_of = {p: group for group in groups for p in group}
        self._lock = threading.RLock()  # autograd may run hooks of several devices side by side
        self._left = {p: passes for p in parameters}  # backward passes until the gradient is complete
        self._pending = {}  # parameter to _PendingGradient; None while passes or members of its group are missing
        self._sparse = {}  # parameters that have had a sparse gradient: how many of its dimensions are sparse
        self._densified = {}  # likewise, of those that are sent as dense ones
        self._listening = False

    def listen(self):
        """Hooks into backward. They hold the reducer weakly: an optimizer that is dropped stops reducing."""
        me = weakref.ref(self)

        def arrived(p):
            reducer = me()
            if reducer is not None:
                reducer._arrived(p)

        self._listening = True
        self._hooks = [p.register_post_accumulate_grad_hook(arrived) for p in self._parameters]
        weakref.finalize(self, lambda hooks: [h.remove() for h in hooks], self._hooks)

    def check(self, optimizer):
        """ValueError for an optimizer that the codec does not go with."""
        if self._codec:
            check_momentum(self._codec.core, optimizer)

    @property
    def keeps_momentum(self):
        """Of the codec: a rank that is alone needs it, too."""
        return bool(self._codec and self._codec.core.momentum)

    def set_passes(self, passes):
        self.passes = passes
        self._left = {p: passes for p in self._parameters}

    def busy(self):
        return bool(self._pending)

    def forget(self):
        """Drops what is in flight; the queue finishes it by itself."""
        with self._lock:
            self._pending.clear()
            self._left = {p: self.passes for p in self._parameters}

    def finish(self):
        """Submits what backward did not reach or complete, then waits for everything."""
        if not self._listening:
            return
        with self._lock:
            for p in self._parameters:
                self._pending.setdefault(p, None)
            for p in self._parameters:
                if self._pending[p] is None:
                    self._submit_with_group(p)
            try:
                self._land()
            finally:
                self.forget()

    def settle(self):
        """The step was made with the gradients as they were reduced."""
        if self._codec:
            self._codec.settle(True)

    def state_dict(self):
        """What the codec has not sent yet; {} without one."""
        return self._codec.state_dict(rank()) if self._codec and self._listening else {}

    def load_state_dict(self, state):
        if self._codec and self._listening:
            self._codec.load_state_dict(state, rank())

    def _arrived(self, p):
        with self._lock:
            if self._left[p] <= 0 or self._pending.get(p) is not None:
                raise AssertionError(
                    f"the gradient of {self._names[p]} was computed more often than backward_passes_per_step={self.passes} says before "
                    "optimizer.step(); raise backward_passes_per_step to add gradients up locally, or call synchronize() in between")
            self._left[p] -= 1
            self._pending[p] = None
            group = self._group_of.get(p, [p])
            if all(self._left[q] == 0 for q in group):
                self._submit_with_group(p)

    def _submit_with_group(self, p):
        """The group of p in parts that can go as one: by type and device; sparse gradients go alone."""
        if self._codec:
            return self._submit_coded(self._group_of.get(p, [p]))
        parts = {}
        for q in self._group_of.get(p, [p]):
            gradient = self._gradient(q)
            if gradient.is_sparse:
                self._submit_sparse(q, gradient)
            else:
                sent, context = self._compression.compress(gradient.detach())
                parts.setdefault((sent.dtype, sent.device), []).append((q, sent.contiguous(), context))
        for part in parts.values():
            self._submit_dense(part)

    def _gradient(self, p):
        if p.grad is None:
            p.grad = self._empty_sparse(p) if p in self._sparse else torch.zeros_like(p)
        if p.grad.is_sparse:
            if self._sparse_as_dense:
                self._densified[p] = p.grad.sparse_dim()
                p.grad = p.grad.to_dense()
            else:
                self._sparse[p] = p.grad.sparse_dim()
        return p.grad

    def _empty_sparse(self, p):
        dimensions = self._sparse[p]
        indices = torch.empty(dimensions, 0, dtype=torch.int64, device=p.device)
        return torch.sparse_coo_tensor(indices, p.new_empty(0, *p.shape[dimensions:]), p.shape)

    def _submit_dense(self, part):
        """One operation for the whole part; its name is that of its first parameter, alike on all ranks."""
        name, options = self._names[part[0][0]], dict(op=self._op, process_set=self._process_set, **self._scales)
        if len(part) == 1:
            handle = allreduce_async_(part[0][1], name=name, **options)
        else:
            handle = grouped_allreduce_async_([sent for _, sent, _ in part], name=name, **options)
        for p, sent, context in part:
            self._pending[p] = _PendingGradient(sent, context, handle)

    def _submit_coded(self, parameters):
        """Parts of one learning rate: a residual is kept in the measure of what it moves."""
        parts = {}
        for p in parameters:
            gradient = self._gradient(p)
            if gradient.is_sparse:
                raise ValueError(f"the gradient of {self._names[p]} is sparse, and codec {self._codec.spec} is for dense ones: give "
                                 "sparse_as_dense=True, or another compression")
            parts.setdefault(self._rate_of(p), []).append((p, gradient.detach().contiguous()))
        for (_, rate), part in parts.items():
            names, tensors = [str(self._names[p]) for p, _ in part], [tensor for _, tensor in part]
            handle = _core.allreduce_coded(self._codec.core, names, tensors, self._op, rate / self.loss_scale, 1 / self.loss_scale,
                                           names[0], _id_of(self._process_set))
            for p, tensor in part:
                self._pending[p] = _PendingGradient(tensor, None, handle)

    def _submit_sparse(self, p, gradient):
        sent, context = self._compression.compress(gradient.coalesce().detach())
        handle = sparse_allreduce_async(sent, name=self._names[p], op=self._op, process_set=self._process_set)
        self._pending[p] = _PendingGradient(None, context, handle)

    def _land(self):
        waited = set()
        for p, pending in self._pending.items():
            if pending.sent is None:
                p.grad = self._compression.decompress(pending.handle(), pending.context)
                continue
            if pending.handle not in waited:
                synchronize(pending.handle)
                waited.add(pending.handle)
            agreed = self._compression.decompress(pending.sent, pending.context)
            with torch.no_grad():
                if p.grad is None:  # dropped by the user while it was in flight
                    p.grad = agreed
                elif agreed.data_ptr() != p.grad.data_ptr():
                    p.grad.copy_(agreed)
                if p in self._densified:  # optimizers for sparse gradients take no others
                    p.grad = p.grad.to_sparse(self._densified[p])
