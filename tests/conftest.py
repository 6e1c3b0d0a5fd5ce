"""Eight host devices, strict rank promotion, no network; set before JAX is imported."""

import atexit
import importlib.metadata
import os
import shutil
import tempfile
from collections.abc import Iterator

FLAGS = [
    "--xla_force_host_platform_device_count=8",
    # Tests compile many programs and run each for milliseconds: optimisation does not pay.
    "--xla_llvm_disable_expensive_passes=true",
    "--xla_backend_optimization_level=0",
    "--xla_cpu_parallel_codegen_split_count=1",  # workers already share the cores
]
if importlib.metadata.version("jaxlib").startswith("0.10."):
    FLAGS.append("--xla_cpu_use_fusion_emitters=false")  # halves it again; later unknown

os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *FLAGS]).strip()
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

if "PYTEST_XDIST_WORKER" not in os.environ and "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    # What one worker, or a run in a process of its own, has compiled, the others only read.
    _compiled = tempfile.mkdtemp(prefix="jax_rl_tests_")
    atexit.register(shutil.rmtree, _compiled, ignore_errors=True)
    os.environ["JAX_COMPILATION_CACHE_DIR"] = _compiled
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.1"

import jax  # noqa: E402  (the flags above are read at import)
import pytest  # noqa: E402

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_default_matmul_precision", "highest")


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Warm starts of tests stay out of the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_RL_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
