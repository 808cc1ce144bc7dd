"""What packages look for."""
from horovod.version import __version__

__all__ = ["__version__"]
