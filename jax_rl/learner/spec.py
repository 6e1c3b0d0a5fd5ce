"""What is fixed when the learner is compiled."""

import dataclasses

from jax_rl.config import ModelConfig, ObjectiveConfig, OptimizerConfig
from jax_rl.mesh.layout import Layout


@dataclasses.dataclass(frozen=True)
class LearnerSpec:
    """Hashable: one compiled program for each."""

    model: ModelConfig
    layout: Layout
    objective: ObjectiveConfig
    optimizer: OptimizerConfig
    group: int
    updates: int
    microbatch: int
    max_prompt_length: int
    max_response_length: int
    measure_noise: bool = False  # norms for the gradient noise scale are among the metrics
