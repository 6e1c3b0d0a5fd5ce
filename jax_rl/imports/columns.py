"""Which column of a log is what: presets for known trainers, and the user's own map."""

import re
from collections.abc import Iterable, Mapping, Sequence

from jax_rl.errors import UserError, suggest

ROLES = {
    "step": "iterations so far",
    "samples": "rollouts so far; left out, step x batch",
    "score": "validation score",
    "seconds": "seconds since the start of the run",
    "timestamp": "seconds since 1970",
    "step_seconds": "seconds of one iteration",
    "total_seconds": "seconds of the whole run, once; spread evenly over its steps",
    "generate": "seconds of generation in one iteration",
    "reward_seconds": "seconds of scoring in one iteration",
    "learn": "seconds of learning in one iteration",
    "sync": "seconds of handing weights over in one iteration",
    "validate": "seconds of one validation, after the iteration",
    "checkpoint": "seconds of one checkpoint, after the iteration",
    "mean_length": "response tokens per rollout",
    "reward": "mean training reward",
    "rate": "learning rate",
    "loss": "loss",
    "grad_norm": "norm of the gradient before clipping",
    "entropy": "nats per token",
    "kl": "divergence to the starting policy",
    "truncated": "share of responses without an end",
}
"""What a column can be."""

NEEDED = "score"
CLOCKS = ("seconds", "timestamp", "step_seconds", "total_seconds")
"""Where seconds come from: the first of these that a log has."""

_STEPS = (
    "training/global_step",
    "train/global_step",
    "trainer/global_step",
    "global_step",
    "step",
    "Step",
    "iteration",
    "_step",
)
_COMMON: dict[str, tuple[str, ...]] = {
    "step": _STEPS,
    "samples": ("samples", "rollouts", "episodes", "train/episode"),
    "score": ("score", "eval_reward", "eval/reward", "eval/score", "val/score", "validation/score"),
    "seconds": ("seconds", "elapsed_seconds", "_runtime", "Relative Time (Process)"),
    "timestamp": ("_timestamp", "timestamp", "wall_time"),
    "step_seconds": ("step_seconds", "step_time", "perf/time_per_step"),
    "mean_length": ("mean_length", "completions/mean_length", "train/completions/mean_length"),
    "reward": ("reward", "train/reward"),
    "rate": ("learning_rate", "lr", "rate", "train/learning_rate"),
    "loss": ("loss", "train/loss"),
    "grad_norm": ("grad_norm", "train/grad_norm"),
    "entropy": ("entropy", "train/entropy"),
    "kl": ("kl", "train/kl"),
    "truncated": ("completions/clipped_ratio",),
}
_VERL: dict[str, tuple[str, ...]] = {
    "score": (r"re:val-core/.*/mean@\d+", r"re:val-core/.*", r"re:val/test_score/.*"),
    "step_seconds": ("timing_s/step", "perf/time_per_step"),
    "generate": ("timing_s/gen",),
    "reward_seconds": ("timing_s/reward",),
    "learn": (
        "timing_s/old_log_prob+timing_s/ref+timing_s/values+timing_s/adv+timing_s/update_critic"
        "+timing_s/update_actor",
    ),
    "sync": ("timing_s/update_weights",),
    "validate": ("timing_s/testing",),
    "checkpoint": ("timing_s/save_checkpoint",),
    "mean_length": ("response_length/mean",),
    "reward": ("critic/score/mean", "critic/rewards/mean"),
    "rate": ("actor/lr",),
    "loss": ("actor/pg_loss", "actor/loss"),
    "grad_norm": ("actor/grad_norm",),
    "entropy": ("actor/entropy", "actor/entropy_loss"),
    "kl": ("actor/kl_loss",),
    "truncated": ("response_length/clip_ratio",),
}
_TRL: dict[str, tuple[str, ...]] = {
    "score": ("eval_reward", r"re:eval_rewards?/.*mean"),
    "validate": ("eval_runtime",),
    "total_seconds": ("train_runtime",),
}
_TUNIX: dict[str, tuple[str, ...]] = {
    "score": ("rewards/eval/mean", "rewards/eval/score/mean", r"re:rewards/eval/.*"),
    "mean_length": ("completions/train/mean_length",),
    "reward": ("rewards/train/mean", "rewards/train/score/mean"),
    "rate": ("actor/train/learning_rate",),
    "loss": ("actor/train/loss",),
    "grad_norm": ("actor/train/grad_norm",),
    "kl": ("actor/train/kl",),
}


def _merge(*presets: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """All names of several presets, those of the first one first."""
    return {role: tuple(n for preset in presets for n in preset.get(role, ())) for role in ROLES}


PRESETS: dict[str, dict[str, tuple[str, ...]]] = {
    "csv": _COMMON,
    "jsonl": _COMMON,
    "tensorboard": _COMMON,
    "wandb": _merge(_COMMON, _VERL, _TRL, _TUNIX),  # a tracker of any trainer's runs
    "verl": {**_COMMON, **_VERL},
    "trl": {**_COMMON, **_TRL},
    "tunix": {**_COMMON, **_TUNIX},
}
"""Names to look for, by role; the first that is there counts. `re:` is a pattern, `+` a sum."""


def choose_columns(
    names: Iterable[str], *, format: str, given: Mapping[str, str], where: str
) -> dict[str, list[str]]:
    """The columns of each role; their numbers are added up.

    Args:
      names: of all columns.
      format: whose names to look for where nothing is given.
      given: columns by role; `-` for none.
      where: the log, for messages.

    Raises:
      UserError: an unknown role, a column that is not there, several scores to choose from, or no
        score, no seconds or neither step nor samples.
    """
    known = sorted(names)
    for role in given:
        if role not in ROLES:
            raise UserError(
                f"map {role}={given[role]}: no such role{suggest(role, ROLES)} (known:"
                f" {', '.join(ROLES)})"
            )
    chosen: dict[str, list[str]] = {}
    for role in ROLES:
        column = given.get(role, "")
        if column == "-":
            continue
        if column:
            chosen[role] = _find_given(role, column, known, where)
        elif found := _find_preset(role, PRESETS[format].get(role, ()), known, where):
            chosen[role] = found
    _check_needs(chosen, known, where)
    return chosen


def _find_given(role: str, column: str, known: Sequence[str], where: str) -> list[str]:
    parts = [column] if column in known else column.split("+")
    for part in parts:
        if part not in known:
            raise UserError(
                f"{where}: no column {part!r} for {role}{suggest(part, known)} (there are:"
                f" {_list(known)})"
            )
    return parts


def _find_preset(
    role: str, candidates: Sequence[str], known: Sequence[str], where: str
) -> list[str]:
    for candidate in candidates:
        if not candidate.startswith("re:"):
            found = [part for part in candidate.split("+") if part in known]
            if found:
                return found
            continue
        matches = [name for name in known if re.fullmatch(candidate[3:], name)]
        if len(matches) > 1:
            raise UserError(
                f"{where}: several columns may be the {role}; choose one by --map {role}=COLUMN:"
                f" {_list(matches)}"
            )
        if matches:
            return matches
    return []


def _check_needs(chosen: Mapping[str, object], known: Sequence[str], where: str) -> None:
    missing = []
    if NEEDED not in chosen:
        missing.append("score")
    if not any(role in chosen for role in CLOCKS):
        missing.append("seconds")
    if "step" not in chosen and "samples" not in chosen:
        missing.append("samples")
    for role in missing:
        raise UserError(
            f"{where}: no column for {role} ({ROLES[role]}) was recognised{suggest(role, known)};"
            f" name it by --map {role}=COLUMN (there are: {_list(known)})"
        )


def _list(names: Sequence[str], most: int = 30) -> str:
    more = f", and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
