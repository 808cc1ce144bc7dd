"""How users' Python objects become bytes: by cloudpickle where it is installed (functions of a notebook, lambdas), else by pickle.

Bytes that are unpickled here come from ranks of the same job, over links whose two ends have proved that they know the job's secret, or
from this user's own memory (`cohort.run`). Nothing else of Cohort is ever pickled.
"""
import io
import pickle

try:
    import cloudpickle as _pickler
except ImportError:
    _pickler = pickle


def dumps(obj) -> bytes:
    """The object as bytes. TypeError with the next step for one that cannot be pickled."""
    buffer = io.BytesIO()
    try:
        _pickler.dump(obj, buffer, protocol=pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        hint = "define it at the top level of a module" if _pickler is not pickle else \
            "define it at the top level of a module, or install cloudpickle, which carries lambdas and local functions too"
        raise TypeError(f"an object of type {type(obj).__name__} cannot be sent to other ranks: {error}; {hint}") from error
    return buffer.getvalue()


def loads(data):
    """The object again. Only for bytes of this job's own ranks."""
    return pickle.loads(data)
