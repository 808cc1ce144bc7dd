"""Attacks on running jobs that need more of the machine than most tests (clocks, cgroups, FUSE, many ranks): check.py <programs> <claim>"""
import os
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE] + [os.path.join(HERE, "..", folder) for folder in ("elastic", "train", "chaos")]
from clocks import elastic_clocks, fixed_clocks, left_folder, monotonic_clocks, owned_folder  # noqa: E402
from folders import failing_folder, gone_folder, hanging_folder, hanging_saves, lacking_folder, slow_folder  # noqa: E402
from memory import address_space, crowded_group, small_group  # noqa: E402
from ranks import many_sharded, many_train, many_workers  # noqa: E402

CLAIMS = (elastic_clocks, fixed_clocks, left_folder, monotonic_clocks, owned_folder, failing_folder, gone_folder, hanging_folder, hanging_saves,
          lacking_folder, slow_folder, address_space, crowded_group, small_group, many_sharded, many_train, many_workers)

if __name__ == "__main__":
    claim = {claim.__name__: claim for claim in CLAIMS}[sys.argv[2]]
    with tempfile.TemporaryDirectory(prefix="cohort-attacks-") as scratch:
        claim(os.path.abspath(sys.argv[1]), scratch)
