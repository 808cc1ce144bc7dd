import sys

import launch

# Outside ctest the package of the build folder is the one that is tested.
sys.path[:0] = [path for path in (str(launch.BUILD / "python"),) if path not in sys.path]


def pytest_configure(config):
    config.addinivalue_line("markers", "long: takes long; left out of `make test`, run by `make test-all` and `make test-python-all`")


def pytest_collection_finish(session):
    launch.plan((item.function, item.callspec.params["count"]) for item in session.items if hasattr(item.function, "claim"))
