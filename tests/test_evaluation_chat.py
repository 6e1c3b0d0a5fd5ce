"""A chat: what is sent to the model, what comes back, and what is written meanwhile."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from evaluation_models import write_model
from tokenizers import Tokenizer, pre_tokenizers
from trainer_runs import CONFIG, run

from jax_rl.config import Config, ModelConfig, RunConfig, TextConfig
from jax_rl.errors import UserError
from jax_rl.evaluation import chat as module
from jax_rl.evaluation.chat import chat


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Config, Any]:
    directory = tmp_path_factory.mktemp("model")
    torch_model = write_model(directory)
    shape = ModelConfig(checkpoint=str(directory))
    return Config(model=shape, run=RunConfig(devices=1)), torch_model


def encode(text: str) -> list[int]:
    """Ids by hand: one per byte, as the byte-level alphabet sorts its 256 stand-ins."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    split = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return [3 + alphabet.index(c) for piece, _ in split.pre_tokenize_str(text) for c in piece]


def go_on(config: Config, torch_model: Any, text: str, count: int) -> str:
    """The most probable response to a rendered chat, by the reference implementation."""
    ids = encode(text)
    found = torch_model.generate(
        torch.tensor([ids]),
        attention_mask=torch.ones(1, len(ids), dtype=torch.long),
        do_sample=False,
        max_new_tokens=count,
        pad_token_id=0,
    )
    tokenizer = Tokenizer.from_file(f"{config.model.checkpoint}/tokenizer.json")
    response: str = tokenizer.decode(found[0, len(ids) :].tolist())
    return response


def test_turns_are_answered_as_the_reference_does(model: tuple[Config, Any]) -> None:
    pieces: list[str] = []
    first, second = chat(
        model[0], ["hi", "and?"], temperature=0.0, max_tokens=6, write=pieces.append
    )
    text = "user: hi\nassistant: "
    assert first.text == go_on(*model, text, 6)
    text += f"{first.text}\nuser: and?\nassistant: "
    assert second.text == go_on(*model, text, 6)
    assert first.text != second.text
    assert (first.tokens, first.ended, first.limit) == (6, False, 6)
    cut = "  (cut at the length limit)\n"
    assert "".join(pieces) == f"{first.text}{cut}{second.text}{cut}"


def test_a_response_is_written_piece_by_piece(model: tuple[Config, Any]) -> None:
    pieces: list[str] = []
    (said,) = chat(model[0], ["hi"], temperature=0.0, max_tokens=20, write=pieces.append)
    assert len([piece for piece in pieces if piece]) >= 4
    assert "".join(pieces).startswith(said.text)


def test_prompts_are_read_when_they_are_due(model: tuple[Config, Any]) -> None:
    events: list[str] = []

    def type_in() -> Iterator[str]:
        for text in ("one", "two"):
            events.append(f"typed {text}")
            yield text

    chat(model[0], type_in(), max_tokens=4, write=lambda piece: events.append("written"))
    typed = [number for number, event in enumerate(events) if event.startswith("typed")]
    assert typed[0] == 0
    assert 1 < typed[1] < len(events) - 1


def test_seeds_and_turns_have_draws_of_their_own(model: tuple[Config, Any]) -> None:
    plain = Config(model=model[0].model, text=TextConfig(chat="never"), run=RunConfig(devices=1))

    def say(seed: int) -> list[str]:
        found = chat(plain, ["hi", "hi"], seed=seed, max_tokens=6, write=lambda piece: None)
        return [one.text for one in found]

    # Without a template each prompt stands alone, so the two differ by their draws only.
    assert say(0) == say(0)
    assert len({*say(0), *say(1)}) == 4


def test_a_character_in_parts_is_held_back(
    model: tuple[Config, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = encode("né€")  # 1, 2 and 3 bytes

    def grow(*args: Any, **kwargs: Any) -> Iterator[Sequence[int]]:
        return (ids[:count] for count in range(1, len(ids) + 1))

    monkeypatch.setattr(module, "stream_tokens", grow)
    pieces: list[str] = []
    (said,) = chat(model[0], ["hi"], write=pieces.append)
    assert pieces == ["n", "", "é", "", "", "€", "  (cut at the length limit)\n"]
    assert said.text == "né€"
    ids = [*encode("n€")[:2], 2]  # ends inside a character
    pieces.clear()
    (said,) = chat(model[0], ["hi"], write=pieces.append)
    assert "".join(pieces) == "n\N{REPLACEMENT CHARACTER}\n"
    assert said.ended


def test_the_model_has_room_for_so_much(model: tuple[Config, Any]) -> None:
    # 128 positions; "user: ", the text, and "\nassistant: " are 18 tokens and the text's.
    (said,) = chat(model[0], ["x" * 100], max_tokens=500, write=lambda piece: None)
    assert said.limit == 10
    with pytest.raises(UserError, match=r"conversation has 128 tokens, .* made for 128"):
        chat(model[0], ["x" * 110], write=lambda piece: None)


@pytest.mark.parametrize("layout", [pytest.param("fsdp", marks=pytest.mark.slow), "tensor"])
def test_eight_devices_say_the_same(tmp_path: Path, layout: str) -> None:
    write_model(tmp_path, family="llama")
    said = [
        chat(
            Config(
                model=ModelConfig(checkpoint=str(tmp_path)),
                run=RunConfig(layout=place, devices=devices),
            ),
            ["hi"],
            max_tokens=6,
            write=lambda piece: None,
        )
        for place, devices in (("replicated", 1), (layout, 8))
    ]
    assert said[0] == said[1]


def test_a_run_answers_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path / "run", checkpoint={"at_end": True})
    said = chat(tmp_path / "run", ["12=", "34="], temperature=0.0, max_tokens=4)
    assert all("7" in one.text for one in said)
    assert capsys.readouterr().out.startswith(said[0].text)
    with pytest.raises(UserError, match="character 'x'"):
        chat(CONFIG, ["x="])


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"temperature": -0.5}, "temperature = -0.5"),
        ({"temperature": float("nan")}, "temperature = nan"),
        ({"max_tokens": 0}, "max_tokens = 0 must be at least 1"),
    ],
)
def test_settings_out_of_range_are_refused(options: dict[str, Any], part: str) -> None:
    with pytest.raises(UserError, match=part):
        chat(CONFIG, ["12="], **options)
