"""Wrong inputs through the command line: one line each that says what, where and what is right."""

import dataclasses
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import checkpoints
import pytest
import small_qwen3

from jax_rl import cli
from jax_rl.records import FILE_NAME, read_run

SHARD = "model-00001-of-00002.safetensors"
SECOND = "model-00002-of-00002.safetensors"


@dataclasses.dataclass(frozen=True)
class Site:
    """What a user has in a folder."""

    folder: Path

    @property
    def model(self) -> Path:
        return self.folder / "model"

    @property
    def rows(self) -> Path:
        return self.folder / "rows.jsonl"

    @property
    def config(self) -> Path:
        return self.folder / "config.toml"

    @property
    def run(self) -> Path:
        return self.folder / "run"

    def train(self, *words: str) -> int:
        return cli.main(["train", str(self.config), "--dir", str(self.run), *words])


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("origin")
    small_qwen3.write_model(folder / "model")
    return folder


@pytest.fixture
def site(origin: Path, tmp_path: Path) -> Site:
    """Everything in order, to be broken by a test."""
    site = Site(tmp_path)
    shutil.copytree(origin / "model", site.model)
    small_qwen3.write_rows(site.rows)
    small_qwen3.write_config(site.config, model=site.model, rows=site.rows, samples=64)
    return site


def read_error(captured: Any) -> str:
    """The one line of a message, which is the last that was written."""
    assert "Traceback" not in captured.err + captured.out
    lines = captured.err.splitlines()
    assert [line for line in lines if line.startswith("error: ")] == lines[-1:]
    return lines[-1].removeprefix("error: ")


# Checkpoints


def remove(name: str) -> Callable[[Site], None]:
    return lambda site: (site.model / name).unlink()


def change_architecture(site: Site) -> None:
    checkpoints.edit_config(site.model, model_type="gpt2", architectures=["GPT2LMHeadModel"])


def lose_shard(site: Site) -> None:
    names = list(read_tensors(site))
    half = len(names) // 2
    index = {"weight_map": {name: SHARD if i < half else SECOND for i, name in enumerate(names)}}
    (site.model / "model.safetensors").rename(site.model / SHARD)
    (site.model / "model.safetensors.index.json").write_text(json.dumps(index))


def read_tensors(site: Site) -> dict[str, Any]:
    from safetensors.numpy import load_file

    return dict(load_file(site.model / "model.safetensors"))


def cut_columns(site: Site) -> None:
    def change(state: dict[str, Any]) -> None:
        state["model.norm.weight"] = state["model.norm.weight"][:-1].copy()

    checkpoints.edit_tensors(site.model, change)


def truncate(site: Site) -> None:
    file = site.model / "model.safetensors"
    os.truncate(file, file.stat().st_size - 100)


def pickle(site: Site) -> None:
    (site.model / "model.safetensors").unlink()
    (site.model / "pytorch_model.bin").write_bytes(b"never to be read")


def shrink_embedding(site: Site) -> None:
    shutil.rmtree(site.model)
    small_qwen3.write_model(site.model, vocab=200)


# Text and data


def raise_in_template(site: Site) -> None:
    template = "{{ raise_exception('roles must alternate') }}"
    (site.model / "chat_template.jinja").write_text(template)


def lose_column(site: Site) -> None:
    rows = small_qwen3.make_rows()
    rows[6] = {"query": "?", "answer": "aeiou"}
    small_qwen3.write_rows(site.rows, rows)


def empty_rows(site: Site) -> None:
    site.rows.write_text("\n\n")


def lengthen_prompt(site: Site) -> None:
    rows = small_qwen3.make_rows()
    rows[4]["question"] = "7" * 60
    small_qwen3.write_rows(site.rows, rows)


def spoil_answers(site: Site) -> None:
    rows = [{**row, "answer": "consonants"} for row in small_qwen3.make_rows()]
    small_qwen3.write_rows(site.rows, rows)


def nothing(site: Site) -> None:
    """The command line alone is wrong."""


CASES: dict[str, tuple[Callable[[Site], None], list[str], list[str]]] = {
    "no config.json": (
        remove("config.json"),
        [],
        [r"model/config\.json: not found", "safetensors"],
    ),
    "unsupported architecture": (
        change_architecture,
        [],
        [r"model/config\.json", "gpt2", "llama", "qwen3", "gemma3_text"],
    ),
    "absent shard": (lose_shard, [], [r"model\.safetensors\.index\.json", SECOND, "fetch"]),
    "tensor of another shape": (
        cut_columns,
        [],
        [r"model/model\.safetensors", r"model\.norm\.weight", r"\[63\]", r"\[64\]"],
    ),
    "truncated safetensors": (truncate, [], [r"model/model\.safetensors", "truncated", "bytes"]),
    "pickle": (pickle, [], [r"pytorch_model\.bin", "pickle", "refused", "save_pretrained"]),
    "embedding smaller than a prompt's ids": (
        shrink_embedding,
        [],
        [r"rows\.jsonl:\d+", r"has id 2\d\d|has id 3\d\d", "200 rows", "320 ids"],
    ),
    "template that raises": (
        raise_in_template,
        [],
        [r"model/chat_template\.jinja", "roles must alternate"],
    ),
    "tokenizer missing": (remove("tokenizer.json"), [], [r"model/tokenizer\.json", "no such file"]),
    "row without its column": (
        lose_column,
        [],
        [r"rows\.jsonl:7", "'question'", r"task\.prompt_column", "query"],
    ),
    "no rows": (empty_rows, [], [r"rows\.jsonl", "no rows", r"task\.train"]),
    "no file of rows": (
        nothing,
        ["--task.train", "elsewhere.jsonl"],
        [r"task\.train", "'elsewhere.jsonl' does not exist", "working directory"],
    ),
    "prompt over the limit": (
        lengthen_prompt,
        [],
        [r"rows\.jsonl:5", "max_prompt_length is 48", "takes them all", "'drop'"],
    ),
    "layout that does not divide": (
        nothing,
        ["--layout", "tensor", "--run.devices", "8"],
        [
            "layout tensor",
            "heads = 4 over tensor = 8",
            "would do: fsdp, fsdp_tensor, multislice, replicated",
        ],
    ),
    "contradicting field": (
        nothing,
        ["--model.layers", "9"],
        [r"model\.layers = 9", r"config\.json gives 2", "leave it out"],
    ),
    "text without a tokenizer": (
        nothing,
        ["--model.checkpoint", "", "--text.system", "Be brief."],
        [r"text\.system = 'Be brief\.'", r"text\.tokenizer or model\.checkpoint"],
    ),
    "unknown verifier": (
        nothing,
        ["--reward.verifiers", "nummeric"],
        [r"reward\.verifiers = 'nummeric'", "did you mean 'numeric'", "exact", "module:"],
    ),
    "function that is not there": (
        nothing,
        ["--reward.verifiers", "small_qwen3:count"],
        [r"reward\.verifiers = 'small_qwen3:count'", "no attribute 'count'", "importable"],
    ),
    "pattern of no use": (
        nothing,
        ["--reward.verifiers", "regex", "--reward.pattern", "[0-9"],
        [r"reward\.pattern", r"'\[0-9'", "not a regular expression"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_wrong_input_is_one_line_before_anything_is_written(
    case: str, site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil, words, parts = CASES[case]
    spoil(site)
    capsys.readouterr()  # what writing the checkpoint has shown
    assert site.train(*words) == 2
    message = read_error(capsys.readouterr())
    for part in parts:
        assert re.search(part, message), f"{part} is not in: {message}"
    # Once it is put right, the same command line starts the run.
    assert not (site.run / FILE_NAME).exists()


@pytest.mark.parametrize("case", ["no config.json", "truncated safetensors", "pickle"])
@pytest.mark.parametrize("command", ["sample", "eval"])
def test_other_commands_say_the_same(
    case: str, command: str, site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil, _, parts = CASES[case]
    spoil(site)
    words = {
        "sample": ["sample", "--model", str(site.model), "Hello", "--run.devices", "1"],
        "eval": ["eval", str(site.config), "--model", str(site.model)],
    }
    assert cli.main(words[command]) == 2
    message = read_error(capsys.readouterr())
    for part in parts:
        assert re.search(part, message), f"{part} is not in: {message}"


@pytest.mark.slow
def test_a_reward_that_always_raises_stops_the_run_and_leaves_what_was_before(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    assert site.train() == 0
    before = read_run(site.run)
    assert before.end is not None and len(before.iterations) == 1
    written = (site.run / FILE_NAME).read_bytes()
    capsys.readouterr()
    spoil_answers(site)
    words = ["--resume", "--budget.samples", "128"]
    assert site.train(*words) == 2
    message = read_error(capsys.readouterr())
    for part in ("'dataset'", "failed on all 64 responses", "finite number", r"rows\.jsonl:\d+"):
        assert re.search(part, message), message
    assert "LookupError: nothing counts as 'consonants'" in message

    assert (site.run / FILE_NAME).read_bytes().startswith(written)
    record = read_run(site.run)
    assert record.iterations == before.iterations and record.validations == before.validations
    # The checkpoint is as it was: put right, the run goes on.
    small_qwen3.write_rows(site.rows)
    assert site.train(*words) == 0
    assert [event.samples for event in read_run(site.run).iterations] == [64, 128]


@pytest.mark.slow
def test_a_reward_that_always_raises_stops_a_new_run(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil_answers(site)
    assert site.train() == 2
    # Those of the validation before the first iteration.
    assert "failed on all 16 responses" in read_error(capsys.readouterr())
    record = read_run(site.run)
    assert not record.iterations and not record.validations and record.end is None
