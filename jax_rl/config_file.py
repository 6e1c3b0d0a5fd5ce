"""Strict TOML: a file to a `Config`, or one message that says what would be right."""

import dataclasses
import difflib
import math
import tomllib
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from jax_rl import resources
from jax_rl.config import BatchConfig, Config, RopeConfig, resize_batch, study_batches
from jax_rl.errors import UserError

_T = TypeVar("_T")
_TOML_NAMES: Mapping[type, str] = types.MappingProxyType(
    {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}
)


def load_config(path: str | Path) -> Config:
    """Reads a configuration file, given by path or by the name of a packaged one.

    Keys that are left out take the defaults of `jax_rl.config`. Types are checked here, values
    by `validate`.

    Raises:
      UserError: missing file, broken TOML, an unknown table or key, or a value of a wrong type.
    """
    file = resources.find_config(str(path))
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{file}: not valid TOML: {error}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{file}: not UTF-8 text at byte {error.start}") from error
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror}") from error
    return config_from_dict(data, where=str(file))


def config_from_dict(data: Mapping[str, Any], *, where: str) -> Config:
    """A `Config` from nested tables, as TOML or a record gives them.

    Args:
      data: table -> key -> value; whatever is left out takes its default.
      where: the file or record that `data` came from, for messages.

    Raises:
      UserError: an unknown table or key, or a value of a wrong type.
    """
    return _build(Config, data, key="", where=where)


def config_to_dict(config: Config) -> dict[str, Any]:
    """Nested tables of plain values; `config_from_dict` gives an equal `Config` back."""
    plain: dict[str, Any] = _list_tuples(dataclasses.asdict(config))
    return plain


def _list_tuples(value: Any) -> Any:
    """A tuple comes back from a record as a list, so it is one from the start."""
    if isinstance(value, Mapping):
        return {name: _list_tuples(one) for name, one in value.items()}
    return [_list_tuples(one) for one in value] if isinstance(value, tuple) else value


def list_values(config: Any, *, table: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of a configuration or of one of its tables, with its dotted name."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        key = f"{table}.{field.name}" if table else field.name
        if dataclasses.is_dataclass(value):
            yield from list_values(value, table=key)
        else:
            yield key, value


def _build(cls: type[_T], data: Mapping[str, Any], *, key: str, where: str) -> _T:
    hints = typing.get_type_hints(cls)
    for name in data:
        if name not in hints:
            raise UserError(_describe_unknown(name, hints, table=key, where=where))
    values = {
        name: _convert(value, hints[name], key=f"{key}.{name}" if key else name, where=where)
        for name, value in data.items()
    }
    return cls(**values)


def _convert(value: Any, hint: Any, *, key: str, where: str) -> Any:
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        if not isinstance(value, Mapping):
            raise UserError(f"{where}: {key} = {value!r} must be a table: write [{key}] above it")
        return _build(hint, value, key=key, where=where)
    if typing.get_origin(hint) is typing.Literal:
        return _choose(value, typing.get_args(hint), key=key, where=where)
    if typing.get_origin(hint) is tuple:
        if not isinstance(value, list | tuple):
            raise UserError(f"{where}: {key} must be a list, found {_describe_value(value)}")
        item = typing.get_args(hint)[0]
        return tuple(_convert(one, item, key=key, where=where) for one in value)
    # bool is an int in Python, and a TOML integer is a fine float; nothing else is converted.
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is not hint:
        raise UserError(
            f"{where}: {key} must be {_TOML_NAMES[hint]}, found {_describe_value(value)}"
        )
    return value


def _choose(value: Any, choices: tuple[Any, ...], *, key: str, where: str) -> Any:
    if type(value) is str and value in choices:
        return value
    raise UserError(
        f"{where}: {key} must be one of {', '.join(map(repr, choices))}, found"
        f" {_describe_value(value)}{_suggest(str(value), choices)}"
    )


def _suggest(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _describe_value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "a table"
    shown = str(value).lower() if isinstance(value, bool) else repr(value)
    return f"{shown}, which is {_TOML_NAMES.get(type(value), f'a {type(value).__name__}')}"


def _describe_unknown(name: str, known: Iterable[str], *, table: str, where: str) -> str:
    what = f"key {name!r} in [{table}]" if table else f"table {name!r}"
    hint = _suggest(name, known)
    if not hint:
        homes = [
            f"[{home}]"
            for home, hint_type in typing.get_type_hints(Config).items()
            if name in typing.get_type_hints(hint_type)
        ]
        hint = f"; it belongs in {' or '.join(homes)}" if homes else ""
    return f"{where}: unknown {what}{hint} (known: {', '.join(known)})"


_POSITIVE = (
    "task.difficulty",
    "task.max_prompt_length",
    "task.max_response_length",
    "model.layers",
    "model.embed",
    "model.heads",
    "model.kv_heads",
    "model.head_dim",
    "model.mlp",
    "model.vocab",
    "model.rope.theta",
    "model.rope.factor",
    "model.rope.low_frequency_factor",
    "model.rope.high_frequency_factor",
    "model.rope.beta_fast",
    "model.rope.beta_slow",
    "model.rope.attention_factor",
    "model.norm_epsilon",
    "reward.seconds",
    "warm_start.batch",
    "warm_start.learning_rate",
    "batch.size",
    "batch.group",
    "batch.updates",
    "objective.clip_low",
    "objective.clip_high",
    "optimizer.epsilon",
    "optimizer.max_grad_norm",
    "validation.prompts",
    "validation.every_samples",
    "validation.samples_per_prompt",
    "budget.target",
    "budget.samples",
    "budget.seconds",
    "checkpoint.keep",
    "study.seeds",
    "study.steady_seconds",
)
_NOT_NEGATIVE = (
    "reward.length_free",
    "reward.processes",
    "model.rope.local_theta",
    "model.rope.original_length",
    "model.max_length",
    "model.attention_scale",
    "model.attention_softcap",
    "model.final_softcap",
    "model.sliding_window",
    "warm_start.updates",
    "warm_start.seed",
    "batch.microbatch",
    "batch.wave",
    "sampler.temperature",
    "objective.kl_coefficient",
    "optimizer.learning_rate",
    "optimizer.warmup_samples",
    "optimizer.b1",
    "optimizer.b2",
    "optimizer.weight_decay",
    "validation.temperature",
    "warm_start.mistakes",
    "validation.wave",
    "validation.seed",
    "checkpoint.every_samples",
    "checkpoint.every_minutes",
    "study.smaller",
    "study.larger",
    "run.seed",
    "run.devices",
)


def validate(config: Config, *, study: bool = False) -> None:
    """Refuses values out of range, and values that do not fit each other.

    What depends on the devices is checked by `jax_rl.mesh.batch_plan`; names of tasks, objectives
    and layouts where they are looked up.

    Args:
      config: an experiment.
      study: check every batch of the study, not `batch.size` alone.

    Raises:
      UserError: the first thing that is wrong, with the nearest values that would be right.
    """
    for key, value in list_values(config):
        _check_range(key, value)
    _check_limits(config)
    _check_model(config)
    batches = study_batches(config) if study else (config.batch.size,)
    if study and len(batches) < 2:
        raise UserError("study.smaller and study.larger are both 0: one batch compares nothing")
    for size in batches:
        _check_batch(resize_batch(config.batch, size))
    _check_sampling(config)
    _check_grid(config, batches)


def _check_range(key: str, value: Any) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"{key} = {value} must be a finite number")
    if key in _POSITIVE and value <= 0:
        raise UserError(f"{key} = {value} must be above 0")
    if key in _NOT_NEGATIVE and value < 0:
        raise UserError(f"{key} = {value} must be 0 or above")
    if key.endswith(".seed") and value >= 2**31:
        raise UserError(f"{key} = {value} must be below 2**31")


def _check_limits(config: Config) -> None:
    if config.objective.clip_low > 1:
        raise UserError(
            f"objective.clip_low = {config.objective.clip_low} must be at most 1: the ratio is"
            " clipped at 1 - clip_low, and it is never negative"
        )
    for key, decay in (("b1", config.optimizer.b1), ("b2", config.optimizer.b2)):
        if decay >= 1:
            raise UserError(f"optimizer.{key} = {decay} must be below 1")
    if config.budget.target > 1:
        raise UserError(f"budget.target = {config.budget.target} must be a score of at most 1")
    if config.study.factor not in (2, 4):
        raise UserError(f"study.factor = {config.study.factor} must be 2 or 4")


def _check_model(config: Config) -> None:
    model = config.model
    if model.heads % model.kv_heads:
        raise UserError(
            f"model.kv_heads = {model.kv_heads} must divide model.heads = {model.heads};"
            f" nearest: {_near_divisors(model.kv_heads, model.heads)}"
        )
    if model.head_dim % 2:
        raise UserError(
            f"model.head_dim = {model.head_dim} must be even: rotary positions turn pairs;"
            f" nearest: {_near_multiples(model.head_dim, 2)}"
        )
    outside = [layer for layer in model.local_layers if not 0 <= layer < model.layers]
    if outside:
        raise UserError(
            f"model.local_layers names layer {outside[0]}, but the layers of the model are 0 to"
            f" {model.layers - 1}"
        )
    if bool(model.local_layers) != bool(model.sliding_window):
        raise UserError(
            f"model.local_layers = {list(model.local_layers)} and model.sliding_window ="
            f" {model.sliding_window} belong together: set both or neither"
        )
    _check_rope(model.rope)


def _check_rope(rope: RopeConfig) -> None:
    stretched = rope.scaling in ("llama3", "yarn")
    if stretched != bool(rope.original_length):
        raise UserError(
            f"model.rope.original_length = {rope.original_length} with model.rope.scaling ="
            f" {rope.scaling!r}: llama3 and yarn need it, the others do not have it"
        )
    if rope.low_frequency_factor >= rope.high_frequency_factor:
        raise UserError(
            f"model.rope.low_frequency_factor = {rope.low_frequency_factor} must be below"
            f" model.rope.high_frequency_factor = {rope.high_frequency_factor}"
        )


def _check_batch(batch: BatchConfig) -> None:
    size, group, updates = batch.size, batch.group, batch.updates
    if size % group:
        raise UserError(
            f"batch.size = {size} is not a whole number of groups of batch.group = {group};"
            f" nearest: {_near_multiples(size, group)}"
        )
    if (size // group) % updates:
        raise UserError(
            f"batch.updates = {updates} does not cut batch.size = {size} into equal minibatches of"
            f" whole groups of {group}; nearest: {_near_divisors(updates, size // group)}"
        )
    minibatch = size // updates
    if batch.microbatch and minibatch % batch.microbatch:
        raise UserError(
            f"batch.microbatch = {batch.microbatch} must divide the minibatch of {minibatch}"
            f" (batch.size {size} / batch.updates {updates}); nearest:"
            f" {_near_divisors(batch.microbatch, minibatch)}, or 0 for all of it"
        )
    if batch.wave and (batch.wave % group or size % batch.wave):
        raise UserError(
            f"batch.wave = {batch.wave} must divide batch.size = {size} and hold whole groups of"
            f" {group}; nearest: {_near_divisors(batch.wave, size, step=group)}, or 0 for all of it"
        )


def _check_sampling(config: Config) -> None:
    if config.sampler.temperature == 0:
        raise UserError(
            "sampler.temperature = 0 must be above 0 in training: the responses of a greedy group"
            " are all the same, so its advantages are 0 and it has no gradient"
        )
    validation = config.validation
    if validation.temperature == 0 and validation.samples_per_prompt != 1:
        raise UserError(
            f"validation.samples_per_prompt = {validation.samples_per_prompt} must be 1 at"
            " validation.temperature = 0: greedy responses are all the same"
        )


def _check_grid(config: Config, batches: tuple[int, ...]) -> None:
    step = config.validation.every_samples
    common = math.lcm(*batches)
    if step % common:
        named = f"batch.size = {batches[0]}" if len(batches) == 1 else f"all batches {batches}"
        raise UserError(
            f"validation.every_samples = {step} must be a multiple of {named}, so that every batch"
            f" is validated at the same sample counts; nearest: {_near_multiples(step, common)}"
        )
    if config.budget.samples % step:
        raise UserError(
            f"budget.samples = {config.budget.samples} must be a multiple of"
            f" validation.every_samples = {step}, so that the last validation is at the end;"
            f" nearest: {_near_multiples(config.budget.samples, step)}"
        )


def _near_multiples(value: int, step: int) -> str:
    below = value // step * step
    return f"{below} or {below + step}" if below else str(step)


def _near_divisors(value: int, total: int, *, step: int = 1) -> str:
    """The divisors of `total` next to `value`, below and above, among multiples of `step`."""
    divisors = [d for d in range(step, total + 1, step) if total % d == 0]
    below = [d for d in divisors if d < value][-1:]
    above = [d for d in divisors if d > value][:1]
    return " or ".join(map(str, below + above))
