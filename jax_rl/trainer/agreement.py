"""Several processes are one program only if each of them was given the same."""

import hashlib
from typing import Any

from jax_rl.config_file import config_to_dict
from jax_rl.errors import UserError
from jax_rl.hosts.channel import Channel
from jax_rl.trainer.host import describe_versions
from jax_rl.trainer.setup import RunSetup

_PROBLEMS = 4  # training problems that are compared


def check_agreement(setup: RunSetup, channel: Channel) -> None:
    """Refuses processes whose configuration, data or software differ from those of process 0.

    With a copy of the weights in each, such processes would train different policies, and no
    number of the run would show it.

    Raises:
      UserError: naming the process and the first difference.
    """
    if channel.count == 1:
        return
    facts = channel.gather(_list_facts(setup))
    for index, own in enumerate(facts[1:], start=1):
        for name, expected in facts[0].items():
            if own.get(name) != expected:
                raise UserError(
                    f"process {index} differs from process 0: {name} is {own.get(name)!r} there and"
                    f" {expected!r} here; all need the same configuration, data and packages"
                )


def _list_facts(setup: RunSetup) -> dict[str, Any]:
    config = config_to_dict(setup.config)
    training = setup.training(setup.config.run.seed)
    first = [training[i].content for i in range(min(_PROBLEMS, len(training)))]
    return {
        **{f"{table}.{key}": value for table in config for key, value in config[table].items()},
        "the held-out set (its hash)": _hash(sorted(setup.held_out)),
        "the training problems (hash of the first)": _hash(first),
        **{f"version of {name}": text for name, text in describe_versions().items()},
    }


def _hash(texts: list[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]
