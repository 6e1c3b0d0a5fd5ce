"""Which Hugging Face tensor each weight lies in, and how the axes map; one table, both ways."""

import dataclasses
import math

import numpy as np

from jax_rl.config import ModelConfig
from jax_rl.model.weights import Weight, describe_weights

Groups = tuple[tuple[int, ...], ...]
"""For each axis of the tensor the axes of the weight that it merges, in order."""

VECTOR: Groups = ((0,),)  # [d] <-> [d]
TABLE: Groups = ((0,), (1,))  # [v, d] <-> [v, d]
LINEAR: Groups = ((1,), (0,))  # [f, d] <-> [d, f]
INTO_HEADS: Groups = ((1, 2), (0,))  # [n h, d] <-> [d, n, h]
OUT_OF_HEADS: Groups = ((2,), (0, 1))  # [d, n h] <-> [n, h, d]
HEADS: Groups = ((0, 1),)  # [n h] <-> [n, h]

TOP_NAMES: dict[str, tuple[str, Groups]] = {
    "embedding": ("model.embed_tokens.weight", TABLE),
    "final_norm": ("model.norm.weight", VECTOR),
    "head": ("lm_head.weight", TABLE),
}
LAYER_NAMES: dict[str, tuple[str, Groups]] = {
    "attention_norm": ("input_layernorm.weight", VECTOR),
    "q": ("self_attn.q_proj.weight", INTO_HEADS),
    "k": ("self_attn.k_proj.weight", INTO_HEADS),
    "v": ("self_attn.v_proj.weight", INTO_HEADS),
    "q_bias": ("self_attn.q_proj.bias", HEADS),
    "k_bias": ("self_attn.k_proj.bias", HEADS),
    "v_bias": ("self_attn.v_proj.bias", HEADS),
    "q_norm": ("self_attn.q_norm.weight", VECTOR),
    "k_norm": ("self_attn.k_norm.weight", VECTOR),
    "o": ("self_attn.o_proj.weight", OUT_OF_HEADS),
    "mlp_norm": ("post_attention_layernorm.weight", VECTOR),
    "gate": ("mlp.gate_proj.weight", LINEAR),
    "up": ("mlp.up_proj.weight", LINEAR),
    "down": ("mlp.down_proj.weight", LINEAR),
}
POST_NORM_NAMES: dict[str, tuple[str, Groups]] = {
    "attention_post_norm": ("post_attention_layernorm.weight", VECTOR),
    "mlp_norm": ("pre_feedforward_layernorm.weight", VECTOR),
    "mlp_post_norm": ("post_feedforward_layernorm.weight", VECTOR),
}
"""Of families with norms after attention and feed-forward, which use one of the names anew."""


@dataclasses.dataclass(frozen=True)
class Tensor:
    """One tensor of a checkpoint, and the weight, or the layer of a weight, that it holds."""

    name: str
    weight: str
    layer: int | None  # None: not in the tree's `layers`
    inner: tuple[int, ...]  # shape of the weight, without its layer axis and padding
    stored: tuple[int, ...]  # the same with its padding
    axes: tuple[str, ...]  # its logical axes, alike
    groups: Groups

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the tensor in the checkpoint."""
        return tuple(math.prod(self.inner[axis] for axis in group) for group in self.groups)

    def to_weight(self, values: np.ndarray, inner: tuple[int, ...]) -> np.ndarray:
        """The tensor, or a block of it, with the weight's axes.

        Args:
          values: a block whose axes are merged as in the checkpoint.
          inner: the shape of that block in the weight.
        """
        order = [axis for group in self.groups for axis in group]
        split = values.reshape([inner[axis] for axis in order])
        return split.transpose(np.argsort(order))

    def from_weight(self, values: np.ndarray) -> np.ndarray:
        """The weight's layer [inner] as the checkpoint has it."""
        order = [axis for group in self.groups for axis in group]
        return np.ascontiguousarray(values.transpose(order)).reshape(self.shape)


def list_tensors(config: ModelConfig) -> list[Tensor]:
    """Every tensor of a model's checkpoint, in the order of the model; a tied head is none."""
    described = describe_weights(config)
    layers: dict[str, Weight] = described["layers"]
    names = {**LAYER_NAMES, **(POST_NORM_NAMES if config.post_norms else {})}
    tensors = [
        Tensor(
            name=f"model.layers.{layer}.{names[weight][0]}",
            weight=weight,
            layer=layer,
            inner=description.shape[1:],
            stored=description.shape[1:],
            axes=description.axes[1:],
            groups=names[weight][1],
        )
        for layer in range(config.layers)
        for weight, description in layers.items()
    ]
    top = [
        Tensor(
            name=name,
            weight=weight,
            layer=None,
            inner=described[weight].unpadded,
            stored=described[weight].shape,
            axes=described[weight].axes,
            groups=groups,
        )
        for weight, (name, groups) in TOP_NAMES.items()
        if weight in described
    ]
    return [top[0], *tensors, *top[1:]]
