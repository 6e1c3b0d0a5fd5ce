"""Any data set of reasoning-gym, a library of procedural reasoning tasks, by name."""

import dataclasses
import difflib
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from jax_rl.config import TaskConfig
from jax_rl.errors import UserError
from jax_rl.rewards.base import Problem, Response
from jax_rl.tasks.columns import find_content
from jax_rl.tasks.fields import refuse_unused
from jax_rl.tasks.template import parse_template

_SEED = 0
# Some data sets lay all of their items out when they are made: the first of these that works.
_SIZES = (100_000, 10_000, 1_000)
_JUDGE_SIZES = (100,)  # judging takes none of the items, and every process makes its own
_TEMPLATE = (
    "{question}\n\nThink it through step by step, and put the final answer alone between <answer>"
    " and </answer>."
)


@dataclasses.dataclass(frozen=True)
class ReasoningGymReward:
    """The score of the data set's own judge, from 0 to 1, for what stands in the last <answer>.

    Without these tags the whole response is judged. Pickled as the data set's name, which is opened
    when it is unpickled.
    """

    dataset: str

    def __call__(self, problem: Problem, response: Response) -> float:
        _, opened, rest = response.text.rpartition("<answer>")
        answer, closed, _ = rest.partition("</answer>")
        text = answer if opened and closed else response.text
        judge, item = _open(self.dataset, _JUDGE_SIZES), problem.answer
        try:
            return float(judge.score_answer(text.strip(), item))
        except Exception:
            # Some judges raise on text that they cannot read, which is a wrong response. One that
            # fails on the item's own answer as well raises here, and the failure is counted.
            judge.score_answer(item["answer"], item)
            return 0.0

    def __reduce__(self) -> tuple[Callable[[str], "ReasoningGymReward"], tuple[str]]:
        return _load_reward, (self.dataset,)


class ReasoningGym:
    """Items of the data set that `config.dataset` names, at its default difficulty.

    An item is drawn by its number in a data set of fixed seed. A template may name {question}.

    Raises:
      UserError: the package is absent, no data set has the name, or it cannot be made.
    """

    name = "reasoning_gym"
    quick_reward = False

    def __init__(self, config: TaskConfig):
        refuse_unused(config, ("dataset", "template", "long_prompts"))
        self._items = _open(config.dataset, _SIZES)
        self._template = parse_template(config.template or _TEMPLATE)
        self.reward = ReasoningGymReward(config.dataset)
        self.prompt_space: int = len(self._items)  # at most: items may repeat each other

    def draw(self, rng: np.random.Generator) -> Problem:
        """An item by its number."""
        index = int(rng.integers(len(self._items)))
        item = self._items[index]
        place = f"reasoning_gym {self.reward.dataset}[{index}]"
        return Problem(
            prompt=self._template.render({"question": item["question"]}, place=place),
            content=find_content(item["question"]),
            answer=item,
            place=place,
        )

    def solve(self, problem: Problem, rng: np.random.Generator) -> str:
        """The item's own answer.

        Raises:
          UserError: it has none; it is only judged.
        """
        answer = problem.answer["answer"]
        if answer is None:
            raise UserError(
                f"{problem.place}: the data set states no answers, so there are no worked"
                " examples; warm_start.updates = 0 does without"
            )
        return f"<answer>{answer}</answer>"


def _load_reward(dataset: str) -> ReasoningGymReward:
    # Opened here, the package's import counts as loading, not as the first response's time.
    _open(dataset, _JUDGE_SIZES)
    return ReasoningGymReward(dataset)


@functools.cache
def _open(dataset: str, sizes: tuple[int, ...]) -> Any:
    """The data set of that name, with the first number of items that it can be made with."""
    try:
        import reasoning_gym
        from reasoning_gym.factory import DATASETS
    except ImportError as error:
        raise UserError(
            f"task.name = 'reasoning_gym' needs the package reasoning-gym ({error}):"
            " pip install 'jax-rl[tasks]'"
        ) from error
    if dataset not in DATASETS:
        near = difflib.get_close_matches(dataset, DATASETS, n=3)
        hint = f"near: {', '.join(near)}" if near else f"known: {', '.join(sorted(DATASETS))}"
        raise UserError(f"task.dataset = {dataset!r} is no data set of reasoning-gym; {hint}")
    causes = []
    for size in sizes:
        try:
            return reasoning_gym.create_dataset(dataset, seed=_SEED, size=size)
        except (AssertionError, ValueError) as error:
            causes.append(error)
    raise UserError(
        f"task.dataset = {dataset!r}: reasoning-gym cannot make it with default settings:"
        f" {causes[-1]}"
    ) from causes[-1]
