"""How gradients are compressed before they are sent, and decompressed.

A compressor is a class with two static methods; hand your own to `DistributedOptimizer(compression=...)` or `allreduce(compression=...)`.
A codec (docs/codecs.md) is more than that: it has payloads of its own that no sum adds up, and what it does not send is kept and sent later.
"""
import torch

from cohort import _core, codecs


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


class CodecCompressor(Compressor):
    """A codec, for `DistributedOptimizer(compression=...)`. Called with parameters it gives the codec with them: `topk(ratio=0.001)`.

    seed: of codecs that draw random numbers; the same on all ranks.
    """

    def __init__(self, spec, seed=0):
        self.spec = _core._codec_spec(spec)
        self.seed = seed
        self._name = self.spec.partition("(")[0]

    def __call__(self, *values, seed=0, **named):
        return CodecCompressor(codecs.spec_of(self._name, values, named), seed)

    def __repr__(self):
        return f"Compression.codec({self.spec!r})"

    def compress(self, tensor):
        raise ValueError(f"codec {self.spec} is for hvd.DistributedOptimizer, which keeps what it does not send; a single operation takes "
                         "Compression.none, .fp16 or .bf16")


class _Codecs(type):
    def __getattr__(cls, name):
        if name in _core._codecs():
            return CodecCompressor(name)
        raise AttributeError(f"there is no Compression.{name}; there are none, fp16, bf16, codec(\"...\") and {', '.join(_core._codecs())}")


class Compression(metaclass=_Codecs):
    """The compressors that ship: `none`, `fp16`, `bf16`, and every codec by its name: `int8`, `topk(ratio=0.01)` (docs/codecs.md).

    `fp16` and `bf16` are casts, as in Horovod; `codec("fp16")` is the codec of that name.
    """

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor

    @staticmethod
    def codec(spec: str, seed: int = 0) -> CodecCompressor:
        """Any codec by its spec: `codec("topk(ratio=0.01)")`."""
        return CodecCompressor(spec, seed)
