"""The safetensors files of a checkpoint directory, checked from their headers alone."""

import dataclasses
import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jax_rl.config import ModelConfig
from jax_rl.errors import UserError
from jax_rl.model.huggingface.keys import read_object
from jax_rl.model.huggingface.names import TOP_NAMES, list_tensors

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
"""Types as safetensors calls them."""
HEAD = TOP_NAMES["head"][0]
BUFFER = "rotary_emb.inv_freq"
"""End of the name of a buffer that older files hold; it follows from config.json."""


@dataclasses.dataclass(frozen=True)
class Header:
    """What a file says of one of its tensors."""

    file: Path
    shape: tuple[int, ...]
    dtype: str  # as safetensors calls it


def check_checkpoint(directory: Path, config: ModelConfig) -> dict[str, Header]:
    """Tensor name -> header, of a checkpoint that holds this model whole and nothing else.

    Only headers are read. A second copy of a tied head is let through here; `load_weights`
    compares it.

    Args:
      directory: with model.safetensors, or shards and model.safetensors.index.json.
      config: the model, as `read_model_config` gives it.

    Raises:
      UserError: files absent, truncated or pickled, or a tensor that is missing, unexpected, of
        another shape, or quantized; the message names file and tensor.
    """
    headers = read_headers(Path(directory))
    for name, header in headers.items():
        if header.dtype not in DTYPES and not name.endswith(BUFFER):
            raise UserError(
                f"{header.file}: tensor {name} is of type {header.dtype};"
                f" {', '.join(DTYPES)} are right. Quantized weights are not implemented: use the"
                " checkpoint they were made from"
            )
    expected = {tensor.name: tensor.shape for tensor in list_tensors(config)}
    place = next(iter(headers.values())).file.parent
    missing = [name for name in expected if name not in headers]
    if HEAD in missing:
        raise UserError(
            f"{place}: tensor {HEAD} is missing, and tie_word_embeddings in config.json is not true"
        )
    extra = [name for name in headers if name not in expected and not name.endswith(BUFFER)]
    if config.tied_head and HEAD in extra:
        extra.remove(HEAD)
    if missing:
        near = difflib.get_close_matches(missing[0], extra, n=1)
        hint = f"; the nearest there is {near[0]}" if near else ""
        raise UserError(f"{place}: missing {_name_some(missing)}{hint}")
    if extra:
        raise UserError(
            f"{headers[extra[0]].file}: the model of config.json has no {_name_some(extra)}"
        )
    for name, shape in expected.items():
        if headers[name].shape != shape:
            raise UserError(
                f"{headers[name].file}: tensor {name} has the shape {list(headers[name].shape)},"
                f" where config.json asks for {list(shape)}"
            )
    return headers


def read_headers(directory: Path) -> dict[str, Header]:
    """Tensor name -> header over all files; an index must agree with its shards.

    Raises:
      UserError: as `check_checkpoint`.
    """
    if (directory / SINGLE).exists():  # before an index, as transformers has it
        return _read_file(directory / SINGLE)
    index = directory / INDEX
    if not index.exists():
        raise _describe_absence(directory)
    weight_map = read_object(index, why="it names the shards").get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise UserError(f"{index}: weight_map, an object from tensor to shard, is missing")
    for name, shard in weight_map.items():
        if not isinstance(shard, str) or Path(shard).name != shard:
            raise UserError(f"{index}: tensor {name} lies in {shard!r}, which is no file name")
    shards = sorted(set(weight_map.values()))
    absent = [shard for shard in shards if not (directory / shard).exists()]
    if absent:
        raise UserError(
            f"{index}: names {_name_some(absent, 'shard')}, which"
            f" {'is' if len(absent) == 1 else 'are'} not in the directory; fetch them again"
        )
    headers: dict[str, Header] = {}
    for shard in shards:
        found = _read_file(directory / shard)
        lacking = [n for n, home in weight_map.items() if home == shard and n not in found]
        if lacking:
            raise UserError(
                f"{directory / shard}: has no {_name_some(lacking)}, which {INDEX} names"
            )
        surplus = [name for name in found if weight_map.get(name) != shard]
        if surplus:
            raise UserError(f"{directory / shard}: {INDEX} does not name {_name_some(surplus)}")
        headers.update(found)
    return headers


def open_file(file: Path) -> Any:
    """A safetensors file, mapped into memory: a context with `keys` and `get_slice`.

    Raises:
      UserError: truncated or not of that format.
    """
    from safetensors import SafetensorError, safe_open

    try:
        return safe_open(file, framework="np")
    except SafetensorError as error:
        raise UserError(
            f"{file}: truncated, or not a safetensors file ({error}); found"
            f" {file.stat().st_size} bytes; fetch it again"
        ) from None
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error}") from None


def _read_file(file: Path) -> dict[str, Header]:
    headers = {}
    with open_file(file) as tensors:
        for name in tensors.keys():  # noqa: SIM118 (not a mapping)
            view = tensors.get_slice(name)
            headers[name] = Header(file, tuple(view.get_shape()), view.get_dtype())
    if not headers:
        raise UserError(f"{file}: holds no tensors")
    return headers


def _describe_absence(directory: Path) -> UserError:
    pickles = sorted(
        file.name
        for suffix in ("bin", "pt", "pth", "ckpt")
        for file in directory.glob(f"*.{suffix}")
    )
    if pickles:
        return UserError(
            f"{directory}: holds its weights as pickle ({_name_some(pickles, 'file')}), which can"
            " run code when it is read, and is refused. Convert it where you trust it: load it"
            " with transformers and save_pretrained(directory, safe_serialization=True)"
        )
    others = sorted(file.name for file in directory.glob("*.safetensors"))
    found = f"; found {_name_some(others, 'file')}" if others else ""
    return UserError(f"{directory}: neither {SINGLE} nor {INDEX} is there{found}")


def _name_some(names: Iterable[str], what: str = "tensor") -> str:
    names = list(names)
    shown = ", ".join(names[:3])
    if len(names) == 1:
        return f"{what} {shown}"
    return f"{len(names)} {what}s: {shown}{', ...' if len(names) > 3 else ''}"
