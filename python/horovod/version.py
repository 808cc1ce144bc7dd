"""The release of Horovod whose interface this is; scripts compare it."""
__version__ = "0.28.1"
