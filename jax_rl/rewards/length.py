"""The penalty on long responses."""

import dataclasses

from jax_rl.rewards.base import Problem, Response


@dataclasses.dataclass(frozen=True)
class Length:
    """0 for responses up to `free` tokens, from there growing linearly to 1 at the limit.

    A penalty: it belongs into a sum with a negative weight. With `free` at the limit or above,
    no response is penalised.
    """

    free: int
    """Tokens."""

    def __call__(self, problem: Problem, response: Response) -> float:
        excess = response.tokens - self.free
        return min(1.0, excess / (response.limit - self.free)) if excess > 0 else 0.0
