"""Fashion-MNIST as Debian's package dataset-fashion-mnist installs it, read with nothing but Python and torch."""
import gzip
import pathlib
import struct

import torch

FOLDER = pathlib.Path("/usr/share/datasets/fashion-mnist")


def _idx(path):
    """The bytes of an IDX file as a tensor: two zeros, the type (8: bytes), the number of dimensions, the dimensions, the data."""
    if not path.exists():
        raise SystemExit(f"{path} is not there: apt-get install dataset-fashion-mnist")
    with gzip.open(path) as file:
        zeros, kind, dimensions = struct.unpack(">HBB", file.read(4))
        if zeros != 0 or kind != 8:
            raise SystemExit(f"{path} is no IDX file of bytes")
        shape = struct.unpack(f">{dimensions}I", file.read(4 * dimensions))
        return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).view(shape)


def load(split, limit=None):
    """A TensorDataset of (1 x 28 x 28 floats, class): split is "train" (60000 images) or "test" (10000)."""
    stem = {"train": "train", "test": "t10k"}[split]
    images = _idx(FOLDER / f"{stem}-images-idx3-ubyte.gz")[:limit]
    labels = _idx(FOLDER / f"{stem}-labels-idx1-ubyte.gz")[:limit]
    return torch.utils.data.TensorDataset(images.unsqueeze(1).float().div(255).sub(0.2860).div(0.3530), labels.long())
