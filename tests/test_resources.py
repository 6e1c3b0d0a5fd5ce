"""Layouts and configurations by path and by name."""

from pathlib import Path

import pytest

from jax_rl import resources
from jax_rl.errors import UserError

CHECKOUT = Path(__file__).parents[1]


def test_a_name_is_the_file_of_the_checkout() -> None:
    assert resources.find_layout("fsdp") == CHECKOUT / "sharding" / "fsdp.toml"
    assert resources.find_config("tiny") == CHECKOUT / "configs" / "tiny.toml"


def test_an_existing_path_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fsdp").write_text("")
    assert resources.find_layout("fsdp") == Path("fsdp")


def test_a_folder_of_that_name_is_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fsdp").mkdir()
    assert resources.find_layout("fsdp") == CHECKOUT / "sharding" / "fsdp.toml"


def test_a_package_away_from_a_checkout_has_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packaged = tmp_path / "jax_rl" / "_data" / "sharding"
    packaged.mkdir(parents=True)
    (packaged / "mine.toml").write_text("")
    (tmp_path / "sharding").mkdir()  # not ours: there is no pyproject.toml beside it
    monkeypatch.setattr(resources, "_PACKAGE", tmp_path / "jax_rl")
    assert resources.find_layout("mine") == packaged / "mine.toml"
    assert resources.list_known("sharding") == ("mine",)


def test_unknown_layout_names_the_nearest_and_all() -> None:
    with pytest.raises(UserError) as caught:
        resources.find_layout("fsdb")
    message = str(caught.value)
    assert "no layout 'fsdb'" in message
    assert "Did you mean 'fsdp'?" in message
    assert "fsdp, fsdp_sampler_tensor, fsdp_tensor, multislice, replicated, tensor" in message
