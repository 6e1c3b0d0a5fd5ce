"""Which policy a word means."""

from pathlib import Path

import pytest
from trainer_runs import CONFIG, run

from jax_rl.config_file import load_config
from jax_rl.errors import UserError
from jax_rl.evaluation.source import Source, find_policy


def test_a_configuration_by_name_or_value() -> None:
    assert find_policy("tiny") == Source(load_config("tiny"), None)
    assert find_policy(CONFIG, run=Path("here")) == Source(CONFIG, Path("here"))


def test_a_run_gives_the_configuration_that_it_recorded(tmp_path: Path) -> None:
    run(tmp_path / "run", budget={"samples": 32})
    found = find_policy(str(tmp_path / "run"))
    assert found.run == tmp_path / "run"
    assert (found.config.task, found.config.budget.samples) == (CONFIG.task, 32)


def test_other_directories_are_refused_with_what_was_perhaps_meant(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"is not the directory of a run: .* is missing$"):
        find_policy(tmp_path)
    (tmp_path / "cells" / "b00016_s0").mkdir(parents=True)
    with pytest.raises(UserError, match="holds its runs under cells/: b00016_s0"):
        find_policy(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match="name it with --model"):
        find_policy(tmp_path)
    with pytest.raises(UserError, match="nowhere"):
        find_policy(tmp_path / "nowhere")
