"""Eight host devices, strict rank promotion, no network; set before JAX is imported."""

import importlib.metadata
import os
from collections.abc import Iterator

FLAGS = [
    "--xla_force_host_platform_device_count=8",
    # Tests compile many programs and run each for milliseconds: optimisation does not pay.
    "--xla_llvm_disable_expensive_passes=true",
    "--xla_backend_optimization_level=0",
]
if importlib.metadata.version("jaxlib").startswith("0.10."):
    FLAGS.append("--xla_cpu_use_fusion_emitters=false")  # halves it again; later unknown

os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *FLAGS]).strip()
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

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
