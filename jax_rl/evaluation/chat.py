"""A chat in the terminal: responses stream as they are sampled."""

import dataclasses
import math
from collections.abc import Callable, Iterable
from pathlib import Path

import jax

from jax_rl.config import Config
from jax_rl.config_checks import validate
from jax_rl.errors import UserError
from jax_rl.evaluation.policy import load_policy, prepare_source
from jax_rl.evaluation.source import find_policy
from jax_rl.model.weights import Weights
from jax_rl.rewards.base import Response
from jax_rl.sampler.generate import SamplerSpec
from jax_rl.sampler.stream import stream_tokens
from jax_rl.text.base import Message
from jax_rl.trainer.feed import make_key
from jax_rl.trainer.setup import PolicySetup

_LEAST_COLUMNS = 64  # of prompts; they double as a chat grows, and each number is compiled once


def show(text: str) -> None:
    """Prints a piece of text at once."""
    print(text, end="", flush=True)


def chat(
    source: str | Path | Config,
    prompts: Iterable[str],
    *,
    run: Path | None = None,
    seed: int = 0,
    temperature: float | None = None,
    max_tokens: int = 512,
    write: Callable[[str], object] = show,
) -> list[Response]:
    """Answers prompt after prompt as one conversation, and streams each response.

    With a chat template the turns before are part of every prompt; without one each prompt is
    a text to go on from, alone.

    Args:
      source: as for `evaluate`.
      prompts: what the user says, turn by turn; may be typed while the chat runs.
      run: as for `evaluate`.
      seed: of the sampling.
      temperature: divides the logits, 0 is greedy; sampler.temperature if left out.
      max_tokens: longest response; where the model was made for fewer positions, what is left
        of them.
      write: takes each piece of text as it comes.

    Raises:
      UserError: nothing usable at `source`, or a prompt that the model has no room or no
        embedding for.
    """
    found = find_policy(source, run=run)
    validate(found.config)
    heat = found.config.sampler.temperature if temperature is None else temperature
    if not 0 <= heat < math.inf:
        raise UserError(f"temperature = {heat} must be a number from 0 on; 0 is greedy")
    if not 0 <= seed < 2**31:
        raise UserError(f"seed = {seed} must be from 0 to 2**31 - 1")
    if max_tokens < 1:
        raise UserError(f"max_tokens = {max_tokens} must be at least 1")
    setup = prepare_source(found)
    for note in setup.notes:
        write(f"{note}\n")
    turns: list[Message] = []
    responses: list[Response] = []
    with jax.set_mesh(setup.mesh):
        voice = _Voice(
            setup, load_policy(found, setup), make_key(seed, validation=True, setup=setup)
        )
        for turn, text in enumerate(prompts):
            turns.append({"role": "user", "content": text})
            ids = setup.tokenizer.encode_prompt(turns if setup.tokenizer.chat else text)
            limit = _find_room(setup, ids, max_tokens)
            response = voice.answer(ids, turn=turn, temperature=heat, limit=limit, write=write)
            responses.append(response)
            turns.append({"role": "assistant", "content": response.text})
    return responses


def _find_room(setup: PolicySetup, ids: list[int], max_tokens: int) -> int:
    """How many tokens the response may have.

    Raises:
      UserError: none, or a prompt that cannot be embedded.
    """
    model = setup.config.model
    outside = [token for token in ids if token >= model.vocab]
    if outside or not ids:
        found = f"id {outside[0]}" if outside else "no tokens"
        raise UserError(f"the prompt has {found}; the embedding has rows 0 to {model.vocab - 1}")
    if not model.max_length:
        return max_tokens
    if len(ids) >= model.max_length:
        raise UserError(
            f"the conversation has {len(ids)} tokens, and the model was made for"
            f" {model.max_length} (model.max_length), the response's included"
        )
    return min(max_tokens, model.max_length - len(ids))


@dataclasses.dataclass(frozen=True)
class _Voice:
    """A policy that speaks."""

    setup: PolicySetup
    weights: Weights
    key: jax.Array

    def answer(
        self,
        ids: list[int],
        *,
        turn: int,
        temperature: float,
        limit: int,
        write: Callable[[str], object],
    ) -> Response:
        """Samples and writes one response, the whole characters of it as they come."""
        setup, tokenizer = self.setup, self.setup.tokenizer
        spec = SamplerSpec(
            model=setup.config.model,
            layout=setup.layout.decoding,
            max_prompt_length=_LEAST_COLUMNS * 2 ** _count_doublings(len(ids)),
            max_response_length=limit,
            copies=1,
            end_ids=setup.end_ids,
            pad_id=setup.pad_id,
            greedy=temperature == 0,
        )
        written = ""
        tokens: list[int] = []
        for tokens in stream_tokens(
            self.weights,
            ids,
            key=self.key,
            group=turn,
            temperature=temperature or 1.0,
            spec=spec,
            sharding=setup.decoding_sharding,
            rows=setup.layout.count_decoding_shards(setup.mesh.shape),
        ):
            text = tokenizer.stream_text(tokens)
            write(text[len(written) :])
            written = text
        whole = tokenizer.decode(tokens)
        ended = tokens[-1] in setup.end_ids
        write(whole[len(written) :] + ("\n" if ended else "  (cut at the length limit)\n"))
        return Response(text=whole, tokens=len(tokens), ended=ended, limit=limit)


def _count_doublings(tokens: int) -> int:
    return max(0, math.ceil(math.log2(tokens / _LEAST_COLUMNS)))
