#!/usr/bin/env python3
"""Prints what holds of every model family, as numbers against Hugging Face's implementation.

    python scripts/families.py

Needs the test extra. A tiny random checkpoint of each family is written by transformers, and then
imported, exported, run and sampled from, in float32 at matmul precision `highest`, on the CPU:

    import     tensors that equal those of PyTorch to the bit, of all
    export     tensors of the exported checkpoint that equal the imported one's to the bit, of all
    logits     largest difference over rows of mixed length, beyond windows and scaling thresholds
    generate   greedy tokens that both choose, of all
    on-policy  largest difference of sampler and learner log-probabilities, nats, on 1 device and
               on 8 in the layout that splits most among those that the family divides into

Exit code 1 if anything is out of bounds: logits 1e-4, on-policy 1e-5, all else exact.
"""

import dataclasses
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["TQDM_DISABLE"] = "1"  # transformers draws a bar for every checkpoint

import conftest  # noqa: F401  (eight host devices and matmul precision, before all others)

# isort: split
import checkpoints
import family_checks
import numpy as np
import programs
import torch_models
from family_checks import Family

from jax_rl.errors import UserError
from jax_rl.mesh.devices import check_divides
from jax_rl.model.weights import dimensions

LOGITS_BOUND, MISMATCH_BOUND = 1e-4, 1e-5
SPLITTING = ("fsdp_tensor", "tensor", "fsdp", "replicated")
"""Layouts, those that split most first."""
POST_NORMS = {
    "attention_post_norm": "post_attention_layernorm",
    "mlp_norm": "pre_feedforward_layernorm",
    "mlp_post_norm": "post_feedforward_layernorm",
}
"""Where families with norms after attention and feed-forward keep them."""


@dataclasses.dataclass(frozen=True)
class Line:
    """What was measured of one family."""

    name: str
    imported: tuple[int, int]
    exported: tuple[int, int]
    logits: float
    generated: tuple[int, int]
    mismatch: float
    mismatch_on_eight: float
    layout: str

    @property
    def passes(self) -> bool:
        """Whether all of it is within the bounds."""
        exact = (self.imported, self.exported, self.generated)
        worst = max(self.mismatch, self.mismatch_on_eight)
        return (
            all(0 < equal == total for equal, total in exact)
            and self.logits <= LOGITS_BOUND
            and worst <= MISMATCH_BOUND
        )


def main() -> int:
    """Measures every family and prints the table; a line as soon as it is known."""
    write_row("family", "import", "export", "logits", "generate", "on-policy", "on 8 devices")
    write_row("---", *["---:"] * 6)
    failed = []
    for name in checkpoints.FAMILIES:
        line = measure(name)
        write_row(
            line.name,
            *(f"{equal}/{total}" for equal, total in (line.imported, line.exported)),
            f"{line.logits:.1e}",
            "{}/{}".format(*line.generated),
            f"{line.mismatch:.1e}",
            f"{line.mismatch_on_eight:.1e} {line.layout}",
        )
        if not line.passes:
            failed.append(name)
    if failed:
        print(f"out of bounds: {', '.join(failed)}")
    return int(bool(failed))


def measure(name: str) -> Line:
    """All numbers of one family."""
    with tempfile.TemporaryDirectory() as folder:
        family = family_checks.build(name, Path(folder) / "checkpoint")
        ours, theirs = family_checks.compute_logits(family)
        place = choose_place(family)
        return Line(
            name=name,
            imported=compare_import(family),
            exported=family_checks.compare_export(family, Path(folder) / "export"),
            logits=float(np.abs(ours - theirs).max()),
            generated=family_checks.count_equal_tokens(family),
            mismatch=family_checks.measure_mismatch(family),
            mismatch_on_eight=family_checks.measure_mismatch(family, place),
            layout=place.layout,
        )


def compare_import(family: Family) -> tuple[int, int]:
    """Imported tensors that equal PyTorch's to the bit, and all of PyTorch's."""
    weights = family_checks.load(family)
    found = torch_models.name_weights(weights)
    if family.config.post_norms:
        for layer in range(family.config.layers):
            for ours, theirs in POST_NORMS.items():
                found[f"model.layers.{layer}.{theirs}.weight"] = weights["layers"][ours][layer]
    expected = {name: value.numpy() for name, value in family.model.state_dict().items()}
    if family.config.tied_head:
        del expected["lm_head.weight"]  # the embedding once more
    if found.keys() != expected.keys():
        return 0, len(expected)
    return sum(np.array_equal(found[name], expected[name]) for name in expected), len(expected)


def choose_place(family: Family) -> programs.Place:
    """Eight devices in the layout that splits most among those that the family divides into."""
    for name in SPLITTING:
        place = programs.Place(name, 8)
        try:
            check_divides(place.rules, dict(place.mesh.shape), dimensions(family.config))
        except UserError:
            continue
        return place
    raise AssertionError("a replicated layout divides everything")


def write_row(*cells: str) -> None:
    """A row of a Markdown table, aligned for reading as it is."""
    widths: Sequence[int] = (14, 7, 7, 8, 8, 9, 20)
    print("| " + " | ".join(c.ljust(w) for c, w in zip(cells, widths, strict=True)) + " |")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
