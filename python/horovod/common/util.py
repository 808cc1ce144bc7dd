"""Small helpers that scripts import."""
import contextlib
import math
import os


@contextlib.contextmanager
def env(**variables):
    """with env(HOROVOD_TIMELINE="/tmp/t.json"): environment variables for a while; None takes one away."""
    before = {name: os.environ.get(name) for name in variables}

    def put(values):
        for name, value in values.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    put(variables)
    try:
        yield
    finally:
        put(before)


def num_rank_is_power_2(num_rank):
    """True for 1, 2, 4, 8 ..."""
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def split_list(items, parts):
    """The list in at most `parts` runs of nearly the same length, none of them empty."""
    length = math.ceil(len(items) / parts) if items else 1
    return [items[at:at + length] for at in range(0, len(items), length)]


def is_iterable(x):
    """True when a loop over it works."""
    try:
        iter(x)
    except TypeError:
        return False
    return True


def gpu_available(ext_base_name="torch", verbose=False):
    """True when torch sees a GPU."""
    import torch
    return torch.cuda.is_available()


def extension_available(ext_base_name, verbose=False):
    """True for torch, the only framework here."""
    return ext_base_name == "torch"


def check_extension(ext_name, ext_env_var=None, pkg_path=None, *args):
    """ImportError for any framework but torch."""
    if ext_name not in ("horovod.torch", "torch"):
        raise ImportError(f"{ext_name} is not there: this package brings Horovod's interface to PyTorch only")


def mpi_built(verbose=False):
    """Whether MPI carries the operations."""
    import cohort.torch
    return cohort.torch.mpi_built()


def gloo_built(verbose=False):
    """Whether the place of Gloo is taken: True, Cohort's own engine stands there."""
    import cohort.torch
    return cohort.torch.gloo_built()


def nccl_built(verbose=False):
    """NCCL's version, 0 without it."""
    import cohort.torch
    return cohort.torch.nccl_built()
