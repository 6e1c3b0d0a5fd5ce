"""SmolLM2-135M-Instruct: its weights answer, equal another implementation's, and can be trained."""

import json
import os
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import family_checks
import jax
import numpy as np
import pytest
import smollm2
from programs import ONE

import jax_rl
from jax_rl.config import Config, ModelConfig, RunConfig, TextConfig
from jax_rl.model.huggingface.families import read_model_config
from jax_rl.model.huggingface.load import load_weights
from jax_rl.model.weights import count_parameters
from jax_rl.records import read_run
from jax_rl.text.pretrained import PretrainedTokenizer, load_tokenizer

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch = pytest.importorskip("torch", reason="the reference implementation needs torch")
    transformers = pytest.importorskip(
        "transformers", reason="the reference implementation is that of transformers"
    )

pytestmark = pytest.mark.slow

PARAMETERS = 134_515_008
"""As published."""
QUESTIONS = {
    "What is the capital of France?": "Paris",
    "What is the capital of Germany?": "Berlin",
    "What is the opposite of hot?": "cold",
    "What is the chemical formula of water?": "H2O",
    "Which animal says meow?": "cat",
}
TEXTS = (
    "The quick brown fox jumps over the lazy dog 12345 times.",
    "Gravity is a fundamental force that attracts any two objects with mass.\n\tIt's weak.",
    "def f(x):\n    return x ** 2  # naïve, 日本語 🙂",
)
TASK = """
[task]
name = "dataset"
train = "{rows}"
max_prompt_length = 40
max_response_length = 12

[text]
system = "Answer with a number."

[reward]
verifiers = ["numeric", "length"]
weights = [1.0, -0.5]
processes = 1

[model]
checkpoint = "{model}"

[batch]
size = 8
group = 4

[optimizer]
learning_rate = 1e-6
warmup_samples = 8

[validation]
prompts = 2
every_samples = 24

[budget]
target = 1.0
samples = 24

[checkpoint]
at_end = false

[run]
devices = 1
"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("smollm2")
    smollm2.write_checkpoint(smollm2.find_gguf(folder), folder / "model")
    yield folder / "model"
    shutil.rmtree(folder)  # pytest keeps the folders of three sessions, and this is half a GiB


@pytest.fixture(scope="module")
def tokenizer(directory: Path) -> PretrainedTokenizer:
    return load_tokenizer(directory, TextConfig())


def run_cli(*words: str, folder: Path) -> subprocess.Popen[bytes]:
    """`jax-rl` as a user starts it: without the flags of the tests, which compile for speed."""
    environment = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    environment["PYTHONPATH"] = str(Path(__file__).parent.parent)
    return subprocess.Popen(
        [sys.executable, "-m", "jax_rl.cli", *words],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def test_it_loads_whole(directory: Path) -> None:
    config = read_model_config(directory, base=ModelConfig())
    assert (config.heads, config.kv_heads, config.head_dim) == (9, 3, 64)
    assert count_parameters(config) == PARAMETERS
    with ONE.entered() as layout:
        weights = load_weights(directory, config=config, layout=layout)
    assert sum(w.size for w in jax.tree.leaves(weights)) == PARAMETERS


def test_it_answers_simple_questions(directory: Path) -> None:
    config = Config(model=ModelConfig(checkpoint=str(directory)), run=RunConfig(devices=1))
    for question, word in QUESTIONS.items():
        pieces: list[str] = []
        (response,) = jax_rl.chat(
            config, [question], temperature=0, max_tokens=24, write=pieces.append
        )
        assert word in response.text, question
        assert response.text in "".join(pieces)


def test_prompts_are_those_of_transformers(directory: Path, tokenizer: PretrainedTokenizer) -> None:
    theirs = transformers.AutoTokenizer.from_pretrained(directory)
    for text in (*TEXTS, *QUESTIONS):
        turns = [{"role": "user", "content": text}]
        expected = theirs.apply_chat_template(turns, add_generation_prompt=True, return_dict=False)
        assert tokenizer.encode_prompt(text) == expected
        assert tokenizer.decode(tokenizer.encode(text)) == text
        assert len(tokenizer.encode(text)) < len(text.encode()) / 2  # the merges are used
    assert tokenizer.end_ids == (2,)
    assert len(tokenizer.encode("31415")) == 5  # a token for each digit


def test_logits_equal_those_of_transformers(
    directory: Path, tokenizer: PretrainedTokenizer, record_property: Any
) -> None:
    rows = [tokenizer.encode_prompt(text) for text in TEXTS]
    width = max(map(len, rows))
    tokens = np.zeros((len(rows), width), np.int32)
    for i, ids in enumerate(rows):
        tokens[i, width - len(ids) :] = ids
    starts = np.array([width - len(ids) for ids in rows], np.int32)
    config = read_model_config(directory, base=ModelConfig())
    with ONE.entered() as layout:
        weights = load_weights(directory, config=config, layout=layout)
        put = ONE.put_rows((tokens, starts))
        ours = np.asarray(family_checks._compute_logits(weights, *put, config, layout))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = transformers.LlamaForCausalLM.from_pretrained(
            directory, attn_implementation="eager", dtype=torch.float32
        )
    largest = 0.0
    for row, ids in enumerate(rows):
        with torch.no_grad():
            theirs = model(torch.tensor([ids])).logits[0].numpy()
        assert theirs.std() > 1
        largest = max(largest, float(np.abs(ours[row, width - len(ids) :] - theirs).max()))
    record_property("largest_difference", largest)
    print(f"largest difference of logits: {largest:.1e}")
    assert largest <= 1e-3


def test_command_line_streams_an_answer(directory: Path) -> None:
    words = ["--temperature", "0", "--max_tokens", "32", "What is the opposite of hot?"]
    pieces: list[bytes] = []
    with run_cli("sample", "--model", str(directory), *words, folder=directory.parent) as process:
        assert process.stdout is not None
        while piece := os.read(process.stdout.fileno(), 4096):
            pieces.append(piece)
    assert process.returncode == 0
    answer = b"".join(pieces).decode()
    assert answer.startswith("The opposite of hot is cold.") and answer.endswith("\n")
    assert len(pieces) > 3  # and not all at once, at the end


def test_three_iterations_are_finite_and_on_policy(directory: Path, tmp_path: Path) -> None:
    rows = [{"prompt": f"What is {a} + {a + 1}?", "answer": 2 * a + 1} for a in range(2, 12)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    config = tmp_path / "smollm2.toml"
    config.write_text(TASK.format(rows=tmp_path / "rows.jsonl", model=directory))
    start = time.perf_counter()
    process = run_cli("train", str(config), "--dir", str(tmp_path / "run"), folder=tmp_path)
    output, _ = process.communicate()
    assert process.returncode == 0, output.decode()
    record = read_run(tmp_path / "run")
    assert len(record.iterations) == 3 and record.end is not None
    for event in record.iterations:
        assert np.isfinite([event.loss, event.grad_norm, event.update_norm, event.entropy]).all()
        assert 0 < event.mismatch_max < 1e-4
        assert event.failed_rewards == 0
    assert min(event.tied_groups for event in record.iterations) < 1  # something to learn from
    assert max(event.update_norm for event in record.iterations) > 0
    print(
        f"largest mismatch {max(event.mismatch_max for event in record.iterations):.1e} nats,"
        f" {time.perf_counter() - start:.0f} s in all, {record.end.elapsed_seconds:.0f} s of the"
        f" run, {record.end.training_seconds / 3:.1f} s an iteration, peak"
        f" {record.end.peak_memory_bytes / 2**30:.1f} GiB"
    )
