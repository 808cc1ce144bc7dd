"""How gradients are compressed before they are sent, and decompressed.

A compressor is a class with two static methods; hand your own to `DistributedOptimizer(compression=...)` or `allreduce(compression=...)`.
"""
import torch


class Compressor:
    """Compresses a tensor before it is sent, and decompresses the result."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple:
        """Returns (the tensor to send, what decompress() needs to know)."""
        raise NotImplementedError("a compressor defines compress(tensor) -> (tensor, context)")

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx) -> torch.Tensor:
        """The received tensor in the form the caller knows."""
        raise NotImplementedError("a compressor defines decompress(tensor, context) -> tensor")


class NoneCompressor(Compressor):
    """Sends tensors as they are."""

    @staticmethod
    def compress(tensor):
        return tensor, None

    @staticmethod
    def decompress(tensor, ctx):
        return tensor


class _Cast(Compressor):
    """Sends floating-point tensors in a narrower type; others, and those that are no wider, as they are."""

    wire = torch.float16

    @classmethod
    def compress(cls, tensor):
        narrower = tensor.dtype.is_floating_point and tensor.dtype.itemsize > cls.wire.itemsize
        return (tensor.to(cls.wire), tensor.dtype) if narrower else (tensor, tensor.dtype)

    @classmethod
    def decompress(cls, tensor, ctx):
        return tensor if ctx is None or tensor.dtype == ctx else tensor.to(ctx)


class FP16Compressor(_Cast):
    """Half the bytes; values above 65504 overflow."""

    wire = torch.float16


class BF16Compressor(_Cast):
    """Half the bytes, the range of float32, 8 bits of precision."""

    wire = torch.bfloat16


class Compression:
    """The compressors that ship: `none`, `fp16`, `bf16`."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
