"""What an experiment is: frozen dataclasses, one per table of a configuration file.

Every field's docstring is its help text on the command line, with its unit. Values that do
not fit each other are refused in `validate`; what depends on the devices is checked by
`jax_rl.mesh.batch_plan`.
"""

import dataclasses
from typing import Literal

from jax_rl.errors import UserError

RateRule = Literal["none", "sqrt", "linear", "power", "adam"]
"""How rate and optimizer move with the minibatch; `jax_rl.learner.schedule` has the formulas."""

Growth = Literal["prompts", "group", "both"]
"""What grows with the batch, N = prompts x group."""

DeviceGrowth = Literal["fixed", "batch"]
"""Whether devices grow with the batch."""


@dataclasses.dataclass(frozen=True)
class TaskConfig:
    """What the policy is asked, and how many tokens it may read and write."""

    name: str = "addition"
    """addition, partition, countdown, gsm8k, math, dataset, reasoning_gym, or `module:Class`."""
    difficulty: int = 2
    """addition: digits of each summand; partition: digits of each part; countdown: numbers."""
    train: str = ""
    """File of training rows: .jsonl, .json, .csv or .parquet."""
    validation: str = ""
    """File of held-out rows; rows are held out of `train` if left out."""
    prompt_column: str = ""
    """Column with the prompt, or with messages; the task's own if left out."""
    answer_column: str = ""
    """Column with the answer; the task's own if left out."""
    template: str = ""
    """Text of the prompt with {column} where a row's value goes; {{ and }} are braces."""
    duplicates: Literal["drop", "keep", "refuse"] = "drop"
    """Training rows that ask for what an earlier row asked for."""
    long_prompts: Literal["refuse", "drop"] = "refuse"
    """Rows whose prompt is longer than max_prompt_length; drawn ones are drawn again by drop."""
    dataset: str = ""
    """reasoning_gym: name of the data set, such as chain_sum."""
    max_prompt_length: int = 8
    """Longest prompt, in tokens, the chat template's own included."""
    max_response_length: int = 6
    """Longest response, in tokens, the end-of-sequence token included."""


@dataclasses.dataclass(frozen=True)
class TextConfig:
    """How prompts become tokens."""

    tokenizer: str = ""
    """Directory with tokenizer.json; model.checkpoint if left out, single characters without."""
    chat: Literal["auto", "always", "never"] = "auto"
    """Whether a text prompt becomes a user turn; auto: if there is a chat template."""
    chat_template: str = ""
    """File with a chat template, instead of the tokenizer's own."""
    system: str = ""
    """System message that opens every chat."""
    thinking: Literal["default", "on", "off"] = "default"
    """What the chat template is told about thinking, where it asks."""


@dataclasses.dataclass(frozen=True)
class RewardConfig:
    """How responses are scored; empty `verifiers` leave it to the task."""

    verifiers: tuple[str, ...] = ()
    """numeric, math, exact, regex, format, countdown, length, or `module:function`."""
    weights: tuple[float, ...] = ()
    """Factor of each verifier in the sum; all 1 if left out."""
    pattern: str = ""
    """regex: the answer is its first group; format: what a whole response must match."""
    length_free: int = 0
    """length: tokens without a penalty; from there it grows to 1 at max_response_length."""
    seconds: float = 5.0
    """Wall-clock limit for one response; a verifier that takes longer is killed."""
    processes: int = 0
    """Processes that score; 0 takes one per core, at most 8."""


@dataclasses.dataclass(frozen=True)
class RopeConfig:
    """Rotary positions, and how they are stretched beyond the length of pre-training."""

    theta: float = 10_000.0
    """Base of the frequencies."""
    local_theta: float = 0.0
    """Base in local layers, which are then never stretched; 0: as in the others."""
    scaling: Literal["none", "linear", "llama3", "yarn"] = "none"
    """How frequencies are stretched."""
    factor: float = 1.0
    """Stretch: the new length is that many times the original."""
    original_length: int = 0
    """llama3, yarn: positions of pre-training."""
    low_frequency_factor: float = 1.0
    """llama3: wavelengths above original_length / this are stretched in full."""
    high_frequency_factor: float = 4.0
    """llama3: wavelengths below original_length / this are not stretched."""
    beta_fast: float = 32.0
    """yarn: rotations over the original length above which nothing is stretched."""
    beta_slow: float = 1.0
    """yarn: rotations over the original length below which all is stretched."""
    attention_factor: float = 1.0
    """yarn: multiplies cosine and sine."""
    truncate: bool = True
    """yarn: the borders between the two are rounded to whole dimensions."""


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """Shape and numerics of the decoder-only transformer."""

    checkpoint: str = ""
    """Directory in Hugging Face's format; its config.json gives the shape, left out here then."""
    layers: int = 2
    """Transformer blocks."""
    embed: int = 64
    """Width of the residual stream."""
    heads: int = 4
    """Query heads."""
    kv_heads: int = 2
    """Key and value heads; divides `heads`."""
    head_dim: int = 16
    """Width of one head; even."""
    mlp: int = 192
    """Hidden width of the gated feed-forward."""
    activation: Literal["silu", "gelu_tanh"] = "silu"
    """Of the feed-forward's gate: SwiGLU or GeGLU."""
    vocab: int = 32
    """Rows of the embedding; at least the tokenizer's size."""
    padded_vocab: int = 0
    """Rows of the embedding in memory, those past `vocab` never drawn; 0: as the layout needs."""
    qk_norm: bool = True
    """RMSNorm over each head of queries and keys, as Qwen3 has it."""
    attention_bias: bool = False
    """Bias on the q, k and v projections, as Qwen2 has it."""
    tied_head: bool = True
    """The head is the embedding, transposed."""
    rope: RopeConfig = RopeConfig()
    """Rotary positions."""
    max_length: int = 0
    """Positions that the model was made for; 0: no limit is known."""
    norm_epsilon: float = 1e-6
    """Added to the mean square in every RMSNorm."""
    norm_offset: bool = False
    """Scales of norms are kept as their difference from 1, as Gemma has them."""
    post_norms: bool = False
    """RMSNorm also after attention and feed-forward, as Gemma has it."""
    embedding_scale: bool = False
    """Embeddings are multiplied by the root of `embed`, as Gemma has it."""
    attention_scale: float = 0.0
    """Multiplies attention scores; 0 takes head_dim ** -0.5."""
    attention_softcap: float = 0.0
    """Bound of attention scores, c tanh(x / c); 0: none."""
    final_softcap: float = 0.0
    """Bound of logits, c tanh(x / c), before the temperature; 0: none."""
    sliding_window: int = 0
    """Tokens that a local layer sees, the query's own included; 0: no layer is local."""
    local_layers: tuple[int, ...] = ()
    """Layers (0 is the first) that see only the sliding window."""
    compute_dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of activations and of the sampler's weights; master weights stay float32."""
    remat: Literal["none", "dots", "full"] = "none"
    """What the backward pass recomputes: nothing, all but matmul outputs, or every block."""

    @property
    def vocab_rows(self) -> int:
        """Rows of the embedding in memory."""
        return self.padded_vocab or self.vocab


@dataclasses.dataclass(frozen=True)
class WarmStartConfig:
    """The short supervised warm-up that brings the policy off zero; never counted as training."""

    updates: int = 0
    """Optimizer updates on worked examples; 0 starts from random weights."""
    batch: int = 256
    """Examples per update."""
    learning_rate: float = 3e-3
    """Peak rate; falls to zero along a cosine."""
    mistakes: float = 0.0
    """Share of examples with one wrong digit, as a corpus has them; the policy becomes unsure."""
    seed: int = 0
    """Seed of the initial weights and of the examples."""


@dataclasses.dataclass(frozen=True)
class BatchConfig:
    """How many rollouts an iteration has and how they are cut."""

    size: int = 128
    """Rollouts per iteration, N = prompts x group. In a study: the reference batch."""
    group: int = 8
    """Rollouts per prompt, K."""
    updates: int = 1
    """Optimizer updates per iteration; minibatch = size / updates."""
    microbatch: int = 0
    """Rollouts per forward-backward, at most; 0 takes the whole minibatch."""
    wave: int = 0
    """Rollouts that the sampler decodes at once, at most; 0 takes the whole batch."""


@dataclasses.dataclass(frozen=True)
class SamplerConfig:
    """The distribution that training samples from."""

    temperature: float = 1.0
    """Divides the logits, in the sampler and in the learner alike; above 0."""


@dataclasses.dataclass(frozen=True)
class ObjectiveConfig:
    """What the learner maximises."""

    advantage: str = "grpo"
    """Advantage estimator: grpo, dr_grpo, rloo, reinforce."""
    loss: str = "clip"
    """Policy-gradient objective: clip, cispo, reinforce."""
    clip_low: float = 0.2
    """The probability ratio is clipped at 1 - clip_low."""
    clip_high: float = 0.2
    """The probability ratio is clipped at 1 + clip_high; larger than clip_low in DAPO."""
    denominator: str = "tokens"
    """What the summed loss is divided by: tokens, sequences, groups, max_length."""
    kl_coefficient: float = 0.0
    """Weight of the KL divergence to the starting policy; 0 keeps no reference weights."""
    kl_estimator: str = "k3"
    """Estimator of that divergence: k2 or k3."""
    count_tied_groups: bool = True
    """Groups whose rewards are all equal stay in the denominator."""
    mask_truncated: bool = False
    """Responses without an end token leave both numerator and denominator."""


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
    """AdamW with global-norm clipping and a linear warm-up."""

    learning_rate: float = 1e-3
    """Rate after the warm-up, at batch.size. A study moves it with the batch."""
    warmup_samples: int = 512
    """Length of the linear warm-up, in rollouts."""
    b1: float = 0.9
    """Decay of the first moment, per update."""
    b2: float = 0.99
    """Decay of the second moment, per update."""
    epsilon: float = 1e-8
    """Added to the root of the second moment."""
    weight_decay: float = 0.0
    """Decoupled decay of matrices, per unit of rate; norms and biases are exempt."""
    max_grad_norm: float = 1.0
    """Global norm that gradients are clipped to."""


@dataclasses.dataclass(frozen=True)
class ValidationConfig:
    """The fixed held-out set and the grid of sample counts on which it is scored."""

    prompts: int = 512
    """Prompts in the set; none of them occurs in training."""
    every_samples: int = 2048
    """Grid step, in rollouts; a multiple of every batch."""
    samples_per_prompt: int = 1
    """Responses per prompt; with more than one, temperature must be above 0."""
    temperature: float = 0.0
    """0 is greedy."""
    wave: int = 0
    """Responses that the sampler decodes at once; 0 takes the whole set."""
    seed: int = 0
    """Seed of the held-out set and of its sampling."""


@dataclasses.dataclass(frozen=True)
class BudgetConfig:
    """When a run stops; set before it starts."""

    target: float = 0.8
    """Validation score to reach, between 0 and 1."""
    samples: int = 65_536
    """Rollouts at most."""
    seconds: float = 3600.0
    """Elapsed seconds at most."""


@dataclasses.dataclass(frozen=True)
class CheckpointConfig:
    """When the complete state is saved, besides the end of the run."""

    every_samples: int = 0
    """Rollouts between checkpoints; 0: not by samples."""
    every_minutes: float = 0.0
    """Minutes between checkpoints; 0: not by time."""
    keep: int = 2
    """Complete checkpoints kept."""
    at_end: bool = True
    """Save when the run ends."""


@dataclasses.dataclass(frozen=True)
class MeasureConfig:
    """What is measured beside training; nothing of it changes an update."""

    noise_scale: bool = False
    """Norms of the gradients of whole groups, for the gradient noise scale."""


@dataclasses.dataclass(frozen=True)
class StudyConfig:
    """The sweep: which batches, which seeds, how the rate moves."""

    factor: int = 4
    """Ratio of neighbouring batch sizes: 2 or 4."""
    smaller: int = 1
    """Batch sizes below the reference batch.size."""
    larger: int = 3
    """Batch sizes above the reference batch.size."""
    seeds: int = 3
    """Runs per batch, with seeds run.seed, run.seed + 1, ..."""
    rate_rule: RateRule = "sqrt"
    """How the rate moves with the minibatch; power takes rate_power, adam moves betas too."""
    rate_power: float = 0.5
    """power: exponent of the minibatch's ratio."""
    layouts: tuple[str, ...] = ()
    """Layouts to compare, each with every batch and seed; run.layout alone if left out."""
    rules: tuple[RateRule, ...] = ()
    """Rate rules to compare; rate_rule alone if left out."""
    growth: tuple[Growth, ...] = ()
    """What grows with the batch, to compare: prompts, group, both; prompts if left out."""
    updates: tuple[int, ...] = ()
    """Minibatches per batch to compare; batch.updates alone if left out."""
    devices: tuple[DeviceGrowth, ...] = ()
    """Devices to compare: fixed, or batch: run.devices grown with it; fixed if left out."""
    trials: tuple[float, ...] = ()
    """Multiples of the rule's rate tried first at every batch, such as 0.5 1 2; none: not tuned."""
    trial_seeds: int = 2
    """Runs per multiple, with seeds that the compared runs do not use."""
    trial_extensions: int = 2
    """How often a best rate at the edge of those tried gets one more beyond it."""
    early_stop: bool = False
    """Stop a run that cannot win any more; it then counts as not having reached the target."""
    early_stop_factor: float = 2.0
    """Multiple of the best complete batch's slowest training time that is too late to win."""
    steady_seconds: float = 2.0
    """Length of the separate throughput measurement after each cell, in seconds."""


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """Seed and layout of one run."""

    seed: int = 0
    """Seed of prompts and of sampling."""
    layout: str = "replicated"
    """A layout by name (sharding/NAME.toml) or the path of a layout file."""
    devices: int = 0
    """Devices used; 0 takes all that are there."""


@dataclasses.dataclass(frozen=True)
class Config:
    """One experiment."""

    task: TaskConfig = TaskConfig()
    text: TextConfig = TextConfig()
    reward: RewardConfig = RewardConfig()
    model: ModelConfig = ModelConfig()
    warm_start: WarmStartConfig = WarmStartConfig()
    batch: BatchConfig = BatchConfig()
    sampler: SamplerConfig = SamplerConfig()
    objective: ObjectiveConfig = ObjectiveConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    validation: ValidationConfig = ValidationConfig()
    budget: BudgetConfig = BudgetConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    measure: MeasureConfig = MeasureConfig()
    study: StudyConfig = StudyConfig()
    run: RunConfig = RunConfig()


def resize_batch(batch: BatchConfig, size: int) -> BatchConfig:
    """The same cut of a batch of another size: what fits the memory stays, or is all of it."""
    return dataclasses.replace(
        batch,
        size=size,
        microbatch=min(batch.microbatch, size // batch.updates),
        wave=min(batch.wave, size),
    )


def study_batches(config: Config) -> tuple[int, ...]:
    """Batch sizes of the study, ascending: batch.size x factor^k."""
    size, study = config.batch.size, config.study
    smaller = [size / study.factor**k for k in range(study.smaller, 0, -1)]
    larger = [size * study.factor**k for k in range(study.larger + 1)]
    for value in smaller:
        groups = "prompts" in (study.growth or ("prompts",))
        if value != int(value) or (groups and int(value) % config.batch.group):
            raise UserError(
                f"study.smaller = {study.smaller}: batch.size {size} divided by study.factor"
                f" {study.factor} that often gives {value:g}, which is not a whole number of"
                f" groups of {config.batch.group}; lower study.smaller or raise batch.size"
            )
    return tuple(int(value) for value in smaller + larger)
