"""One rank of cohort.run(): run_worker <memory of the function> <memory of rank 0's result> <of rank 1's> ...

Writes "V" and the pickled result, or "E", the time and the traceback, and ends with status 1 then.
"""
import os
import struct
import sys
import time
import traceback
from multiprocessing import spawn

from cohort import pickling


def main():
    task, results = sys.argv[1], sys.argv[2:]
    with open(task, "rb") as file:
        preparation, call = pickling.loads(file.read())
    answer = b"E"
    try:
        spawn.prepare(preparation)  # sys.path, working folder, and the caller's script as __mp_main__, as multiprocessing has it
        func, args, kwargs = pickling.loads(call)
        answer = b"V" + pickling.dumps(func(*args, **kwargs))
    except Exception:
        answer += struct.pack(">Q", time.time_ns()) + traceback.format_exc().encode()
        raise
    finally:
        with open(results[int(os.environ["COHORT_RANK"])], "wb") as file:
            file.write(answer)


if __name__ == "__main__":
    main()
