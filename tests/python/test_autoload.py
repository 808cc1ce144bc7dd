"""torch finds the backend of an installed package by its entry point: no `import cohort`, no cost, no failure at `import torch`."""
import subprocess
import sys

import pytest

from installed import environment_in
from launch import environment, launch, stretched


@pytest.fixture
def installed(tmp_path):
    return environment_in(tmp_path)


DDP = """
import sys, torch, torch.distributed as dist
assert "cohort" not in sys.modules and "cohort._core" not in sys.modules
dist.init_process_group("cohort")
assert dist.get_backend() == "cohort" and "cohort._core" in sys.modules
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
model(torch.ones(2, 4) * dist.get_rank()).sum().backward()
print("grad", model.module.weight.grad.tolist(), flush=True)
dist.destroy_process_group()
import cohort, cohort.torch
"""


def test_a_script_needs_no_import(installed):
    done = launch(2, DDP, env=installed)
    assert done.stdout.splitlines() == ["grad [[1.0, 1.0, 1.0, 1.0]]"] * 2, done.stdout + done.stderr


def said(script, env):
    done = subprocess.run([sys.executable, "-c", script], env={**environment(), **env}, text=True, capture_output=True,
                          timeout=stretched(60))
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_torch_loads_nothing_of_the_package(installed):
    script = ("import sys, torch; print(sorted(name for name in sys.modules if name.startswith('cohort')), "
              "hasattr(torch.distributed.Backend, 'COHORT'))")
    assert said(script, installed) == "['cohort_autoload'] True\n"
    assert said(script, {**installed, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}) == "[] False\n"
    imported = "import sys, cohort, torch; print('cohort_autoload' in sys.modules, torch.distributed.Backend.COHORT)"
    assert said(imported, installed) == "True cohort\n"
    assert said(imported, {**installed, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}) == "False cohort\n"


BROKEN = """
import sys
sys.modules["cohort"] = None  # as when the extension does not load
import torch
try:
    torch.distributed.init_process_group("cohort", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
except ImportError as error:
    print("refused:", error)
import cohort_autoload
torch.distributed.Backend.register_backend = None
del torch.distributed.Backend._plugins
cohort_autoload.register()
"""


def test_a_package_that_does_not_load_fails_at_the_group_and_not_at_import_torch(installed):
    assert "refused: import of cohort halted" in said(BROKEN, installed)
