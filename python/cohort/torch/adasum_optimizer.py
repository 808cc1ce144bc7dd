"""DistributedOptimizer(op=Adasum): every rank makes its own step, and the changes of the parameters are combined by Adasum.

    w_i' = step(w, g_i);  d_i = w_i' - w;  w' = w + Adasum(d_1 .. d_n)

Adasum adds what is orthogonal in the changes and averages what is parallel, so that the learning rate need not follow the number of ranks
(Maleki et al., "Scaling distributed training with adaptive summation", 2021). Combining changes instead of gradients keeps that true for
optimizers with momentum and second moments.
"""
import contextlib

import torch

from cohort.torch.mpi_ops import Adasum, allreduce_async_, synchronize


def check_passes(passes):
    """ValueError unless it is a number of backward passes."""
    if not isinstance(passes, int) or passes <= 0:
        raise ValueError(f"backward_passes_per_step must be a whole number above 0, not {passes!r}")


def tell_scheduler(optimizer):
    """A learning-rate scheduler made before wrapping watches the optimizer that it knows: let it see the step."""
    given = optimizer.__dict__.get("_given")
    if given is not None:
        given._opt_called = True


class AdasumOptimizer:
    """What is mixed into the user's class. Groups change nothing here: all changes are submitted at the same moment."""

    def _attach(self, names, parameters, options):
        self._parameter_names = names
        self._reduced = parameters
        self._compression = options["compression"]
        self._process_set = options["process_set"]
        self._passes = options["passes"]
        self._sparse_as_dense = options["sparse_as_dense"]

    @property
    def backward_passes_per_step(self):
        """How many backward passes the user means to make before step()."""
        return self._passes

    def set_backward_passes_per_step(self, passes):
        """Kept for symmetry: gradients add up until step(), however many passes that takes."""
        check_passes(passes)
        self._passes = passes

    def synchronize(self):
        """Nothing to wait for: gradients stay local, and step() combines the changes."""

    @contextlib.contextmanager
    def skip_synchronize(self):
        raise AssertionError("skip_synchronize() has no meaning with op=Adasum: step() combines the ranks' changes, gradients stay local")
        yield

    def step(self, closure=None):
        """The local step, then all ranks' changes combined."""
        tell_scheduler(self)
        if not self._process_set.included():
            return super().step() if closure is None else super().step(closure)
        if self._sparse_as_dense:
            for p in self._reduced:
                if p.grad is not None and p.grad.is_sparse:
                    p.grad = p.grad.to_dense()
        with torch.no_grad():
            before = [p.detach().clone(memory_format=torch.contiguous_format) for p in self._reduced]
        result = super().step() if closure is None else super().step(closure)
        self._combine(before)
        return result

    step.hooked = True  # torch would wrap it once more and run step hooks twice; the user's own step() runs them

    @torch.no_grad()
    def _combine(self, before):
        flights = []
        for p, start in zip(self._reduced, before):
            change, context = self._compression.compress((p.detach() - start).contiguous())
            name = f"{self._parameter_names[p]}.change"
            flights.append((change, context, allreduce_async_(change, name=name, op=Adasum, process_set=self._process_set)))
        for p, start, (change, context, handle) in zip(self._reduced, before, flights):
            synchronize(handle)
            p.copy_(start.add_(self._compression.decompress(change, context)))
