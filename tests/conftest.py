import os
import shutil
import signal
import tempfile
from collections.abc import Iterator

# before anything imports torch: tensors here are small, and threads that wait for each other only cost time
os.environ["OMP_NUM_THREADS"] = "1"

# What tests compile is for this run's processes only: a full cache would hide that compilation fails. The workers of
# pytest-xdist inherit the folder.
if "PYTEST_XDIST_WORKER" not in os.environ:
    os.environ["DGVF_COMPILE_CACHE"] = tempfile.mkdtemp(prefix="dgvf-tests-")
    os.environ["AOT_INDUCTOR_COMPILE_WRAPPER_OPT_LEVEL"] = "O0"  # seconds less a library; kernels keep theirs

# Ray gives its processes a low priority: beside other tests, its actors would take minutes to start
os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112

# before anything imports pygame: no window, no sound device
os.environ["SDL_VIDEODRIVER"] = "dummy"
os.environ["SDL_AUDIODRIVER"] = "dummy"

import pytest
from hypothesis import Phase, settings

from tests import shape_checks

shape_checks.install()  # before anything imports dgvf_agents

# a shell starts what runs in the background deaf to Ctrl-C, and so would be all that tests start
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("dgvf", deadline=None)  # the first example pays for imports and caches
# the same examples for every mutant, and no search for a smaller one where a mutant fails
settings.register_profile("mutation", deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate])
settings.load_profile("dgvf")


def pytest_unconfigure() -> None:
    if "PYTEST_XDIST_WORKER" not in os.environ:
        shutil.rmtree(os.environ["DGVF_COMPILE_CACHE"], ignore_errors=True)


LONG_FILES = (
    "impala/test_actors_on_ray.py",
    "execution/test_compiling.py",
    "core/test_metagradient.py",
    "train/test_checkpoint.py",
    "experiments/test_sweep.py",
    "train/test_learners.py",
    "storage/test_resume.py",
    "learning/test_discovery_learns.py",
)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take half a minute start first, so that no worker is left alone with one at the end."""
    items.sort(key=lambda item: not item.path.as_posix().endswith(LONG_FILES))


@pytest.fixture(scope="module")
def double_precision() -> Iterator[None]:
    """float64 unless said otherwise, on one thread: the mathematics is checked to ten digits, with tiny tensors."""
    import torch

    dtype, threads = torch.get_default_dtype(), torch.get_num_threads()
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    yield
    torch.set_default_dtype(dtype)
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def double_precision_in_jax(double_precision: None) -> Iterator[None]:
    import jax

    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Actors in the learner's own process, in place of a fleet of Ray actors."""
    from tests.impala.in_process import InProcessFleet

    monkeypatch.setattr("dgvf_agents.impala.algorithm.ActorFleet", InProcessFleet)
