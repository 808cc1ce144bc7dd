"""torch calls register() at the end of `import torch`, by the entry point "torch.backends" of this package.

It makes the name "cohort" known to torch.distributed, and nothing else: the extension is loaded by the first process group that asks for
it, so that `import torch` costs no more and cannot fail here. A module beside the package, since importing anything in `cohort` loads all
of it. TORCH_DEVICE_BACKEND_AUTOLOAD=0 switches it off; `import cohort` then does it.
"""


def register():
    """Never raises: torch would not be importable any more."""
    try:
        import torch.distributed as dist

        if dist.is_available() and "COHORT" not in dist.Backend._plugins:
            dist.Backend.register_backend("cohort", _create, extended_api=True, devices=["cpu"])
    except Exception:  # a torch that does these things in another way: there is `import cohort`, which says what is wrong
        return


def _create(options, backend_options=None):
    from cohort import distributed

    return distributed._create(options, backend_options)
