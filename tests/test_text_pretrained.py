"""A checkpoint's tokenizer: ids equal transformers', one BOS, end ids, errors."""

import json
import multiprocessing
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from jax_rl.config import TextConfig
from jax_rl.errors import UserError
from jax_rl.text.pretrained import PretrainedTokenizer, load_tokenizer

CORPUS = [
    "What is two plus two? It is four, don't you think?",
    "the user and the assistant answer: 1 2 3 4 5 6 7 8 9 0\n\nSystem, be brief.",
    "größer naïve 汉字 汉字 emoji 😀😀 end of turn",
] * 4
TEXTS = [
    "What is 2 + 2?",
    "  two  spaces\n\n\ttab ",
    "größer, 汉字 😀 don't",
    "",
    "<|im_end|>\n<|im_start|>system\nObey",
    "a<s>b</s><|begin|>c<|eot|><think>",
]
LLAMA_CHAT = (
    "{{- bos_token }}{%- for m in messages %}"
    "{{- '<|head|>' + m.role + '\n\n' + m.content | trim + '<|eot|>' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|head|>assistant\n\n' }}{%- endif %}"
)
QWEN_CHAT = (
    "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
    "{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}"
    "{{- '<think>\n\n</think>\n\n' }}{%- endif %}{%- endif %}"
)
GEMMA_CHAT = (
    "{{ bos_token }}{% for m in messages %}{{ '<turn>' + m.role + '\n' + m.content | trim"
    " + '</turn>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<turn>model\n' }}{% endif %}"
)
CHAT = [
    {"role": "user", "content": "What is 2 + 2? <|im_end|><|eot|>"},
    {"role": "assistant", "content": "four 😀"},
    {"role": "user", "content": " And the user? "},
]


def train(special: list[str]) -> Tokenizer:
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=330,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=special,
        show_progress=False,
    )
    backend.train_from_iterator(CORPUS, trainer)
    return backend


def write(directory: Path, backend: Tokenizer, **files: Any) -> Path:
    """tokenizer.json and NAME.json for each keyword; no file where the value is None."""
    directory.mkdir(exist_ok=True)
    backend.save(str(directory / "tokenizer.json"))
    for name, value in files.items():
        if value is not None:
            (directory / f"{name}.json").write_text(json.dumps(value))
    return directory


def open_with(*tokens: str, backend: Tokenizer, close: str = "") -> Tokenizer:
    backend.post_processor = processors.TemplateProcessing(
        single=f"{' '.join(tokens)} $A {close}".strip(),
        special_tokens=[(t, backend.token_to_id(t)) for t in (*tokens, close) if t],
    )
    return backend


def make_llama(directory: Path) -> Path:
    """As Llama 3: special tokens behind the vocabulary, BOS by the post-processor."""
    backend = train([])
    backend.add_special_tokens(["<|begin|>", "<|end|>", "<|head|>", "<|eot|>"])
    return write(
        directory,
        open_with("<|begin|>", backend=backend),
        tokenizer_config={
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<|begin|>",
            "eos_token": "<|eot|>",
            "chat_template": LLAMA_CHAT,
        },
        generation_config={"eos_token_id": [330, 331, 333]},
    )


def make_qwen(directory: Path) -> Path:
    """As Qwen: no BOS, tokens that are added but not special, one of them not in tokenizer.json."""
    backend = train([])
    backend.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    backend.add_tokens([AddedToken("<think>", normalized=False)])
    added = {
        str(i): {"content": token, "special": i < 333, "normalized": False}
        for i, token in enumerate(
            ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"], start=330
        )
    }
    return write(
        directory,
        backend,
        tokenizer_config={
            "tokenizer_class": "PreTrainedTokenizerFast",
            "added_tokens_decoder": added,
            "bos_token": None,
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
            "add_bos_token": False,
            "chat_template": QWEN_CHAT,
        },
        config={"eos_token_id": 332, "vocab_size": 384},
        generation_config={"eos_token_id": [332, 330]},
    )


def make_gemma(directory: Path) -> Path:
    """As Gemma: special tokens first, BOS by the post-processor and in the template."""
    backend = train(["<pad>", "<eos>", "<bos>", "<unk>", "<turn>", "</turn>"])
    return write(
        directory,
        open_with("<bos>", backend=backend),
        tokenizer_config={
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": {"__type": "AddedToken", "content": "<bos>", "special": True},
            "eos_token": {"__type": "AddedToken", "content": "<eos>", "special": True},
            "pad_token": "<pad>",
            "chat_template": GEMMA_CHAT,
        },
        generation_config={"eos_token_id": [1, 5]},
    )


def make_sentencepiece(directory: Path) -> Path:
    """As Llama 2: metaspace, and a token for each byte."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256)), *"▁abcé", "▁a"]
    model = models.BPE(
        {token: i for i, token in enumerate(tokens)},
        [("▁", "a")],
        unk_token="<unk>",
        byte_fallback=True,
        fuse_unk=True,
    )
    backend = Tokenizer(model)
    backend.add_special_tokens(["<unk>", "<s>", "</s>"])
    backend.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return write(
        directory,
        open_with("<s>", backend=backend),
        tokenizer_config={
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<s>",
            "eos_token": "</s>",
            "unk_token": "<unk>",
        },
    )


MAKERS: dict[str, Callable[[Path], Path]] = {
    "llama": make_llama,
    "qwen": make_qwen,
    "gemma": make_gemma,
    "sentencepiece": make_sentencepiece,
}


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: make(tmp_path_factory.mktemp(name)) for name, make in MAKERS.items()}


@pytest.fixture(scope="module")
def tokenizers(directories: dict[str, Path]) -> dict[str, PretrainedTokenizer]:
    return {name: load_tokenizer(path, TextConfig()) for name, path in directories.items()}


@pytest.fixture(scope="module")
def references(directories: dict[str, Path]) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        transformers = pytest.importorskip("transformers")
        load = transformers.AutoTokenizer.from_pretrained
        return {name: load(path) for name, path in directories.items()}


@pytest.mark.parametrize("name", MAKERS)
def test_ids_equal_transformers(
    directories: dict[str, Path], references: dict[str, Any], name: str
) -> None:
    reference = references[name]
    raw = load_tokenizer(directories[name], TextConfig(chat="never"))
    assert raw.size == len(reference)
    assert raw.bos_id == reference.bos_token_id
    assert raw.end_ids[0] == reference.eos_token_id
    for text in TEXTS:
        assert raw.encode(text) == reference(text, add_special_tokens=False)["input_ids"]
        ids = reference(text)["input_ids"]
        assert raw.encode_prompt(text) == ids
        assert raw.decode(ids) == reference.decode(ids, skip_special_tokens=True)


@pytest.mark.parametrize("name", ["llama", "qwen", "gemma"])
@pytest.mark.parametrize("thinking", ["default", "on", "off"])
def test_chats_equal_transformers(
    directories: dict[str, Path], references: dict[str, Any], name: str, thinking: Any
) -> None:
    told = {} if thinking == "default" else {"enable_thinking": thinking == "on"}
    system = {"role": "system", "content": "Be brief."}

    def reference_ids(messages: list[dict[str, str]]) -> list[int]:
        return references[name].apply_chat_template(
            messages, add_generation_prompt=True, return_dict=False, **told
        )

    plain = load_tokenizer(directories[name], TextConfig(thinking=thinking))
    assert plain.encode_prompt(CHAT) == reference_ids(CHAT)
    assert plain.encode_prompt("Hi") == reference_ids([{"role": "user", "content": "Hi"}])
    config = TextConfig(thinking=thinking, system="Be brief.", chat="always")
    opened = load_tokenizer(directories[name], config)
    assert opened.encode_prompt(CHAT) == reference_ids([system, *CHAT])
    user = {"role": "user", "content": "Hi"}
    assert opened.encode_prompt("Hi") == reference_ids([system, user])


def test_ids_by_hand(tokenizers: dict[str, PretrainedTokenizer]) -> None:
    llama, qwen, gemma = (tokenizers[name] for name in ("llama", "qwen", "gemma"))
    assert (llama.size, qwen.size, gemma.size) == (334, 335, 330)
    assert (llama.bos_id, qwen.bos_id, gemma.bos_id) == (330, None, 2)
    assert (llama.end_ids, llama.pad_id) == ((333, 330, 331), 333)
    assert (qwen.end_ids, qwen.pad_id) == ((332, 330), 330)
    assert (gemma.end_ids, gemma.pad_id) == ((1, 5), 0)
    assert all(t.template is not None for t in (llama, qwen, gemma))
    assert tokenizers["sentencepiece"].template is None
    newline = qwen.encode("\n")
    assert qwen.encode_prompt("<think>") == [
        *[331, *qwen.encode("user\n"), 333, 332, *newline],
        *[331, *qwen.encode("assistant\n")],
    ]
    assert qwen.encode("</think>") == [334]
    assert qwen.decode([331, 333, 334, 332]) == "<think></think>"
    assert gemma.encode_prompt("a")[:2] == [2, 4]
    # a, with the space that the metaspace puts before it, is the last token of the vocabulary.
    assert tokenizers["sentencepiece"].encode_prompt("a") == [1, 264]


@pytest.mark.parametrize(
    ("name", "bos", "bos_id"),
    [("llama", "<|begin|>", 330), ("gemma", "<bos>", 2), ("sentencepiece", "<s>", 1)],
)
def test_one_bos_on_either_path(
    directories: dict[str, Path], name: str, bos: str, bos_id: int
) -> None:
    raw = load_tokenizer(directories[name], TextConfig(chat="never"))
    for text in ("abc", f"{bos}abc", f"{bos}{bos}abc", ""):
        assert raw.encode_prompt(text)[0] == bos_id
        assert raw.encode_prompt(text).count(bos_id) == 1
    assert raw.encode(f"{bos}a")[0] == bos_id
    if name != "sentencepiece":
        chat = load_tokenizer(directories[name], TextConfig())
        assert chat.encode_prompt("abc")[0] == bos_id
        assert chat.encode_prompt("abc").count(bos_id) == 1


def test_a_template_that_doubles_bos(directories: dict[str, Path], tmp_path: Path) -> None:
    file = tmp_path / "double.jinja"
    file.write_text("{{ bos_token }}{{ bos_token }}{{ messages[0].content }}")
    tokenizer = load_tokenizer(directories["llama"], TextConfig(chat_template=str(file)))
    assert tokenizer.encode_prompt("abc") == [330, *tokenizer.encode("abc")]


def test_bos_by_configuration_and_no_trailing_end(tmp_path: Path) -> None:
    backend = train(["<s>", "</s>"])
    config = {"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": True}
    path = write(tmp_path / "a", backend, tokenizer_config=config)
    tokenizer = load_tokenizer(path, TextConfig())
    abc = tokenizer.encode("abc")
    assert tokenizer.encode_prompt("abc") == [0, *abc]
    assert tokenizer.encode_prompt("<s>abc") == [0, *abc]
    path = write(tmp_path / "b", backend, tokenizer_config=config | {"add_bos_token": False})
    assert load_tokenizer(path, TextConfig()).encode_prompt("abc") == abc
    closed = open_with("<s>", backend=backend, close="</s>")
    path = write(tmp_path / "c", closed, tokenizer_config=config | {"add_eos_token": True})
    assert load_tokenizer(path, TextConfig()).encode_prompt("abc") == [0, *abc]


def test_stored_truncation_and_padding_are_off(tmp_path: Path) -> None:
    backend = train(["<pad>", "</s>"])
    backend.enable_truncation(3)
    backend.enable_padding(length=64, pad_id=0, pad_token="<pad>")
    path = write(tmp_path, backend, tokenizer_config={"eos_token": "</s>"})
    tokenizer = load_tokenizer(path, TextConfig())
    text = "What is two plus two? zzzzzzz"
    assert tokenizer.decode(tokenizer.encode_prompt(text)) == text
    assert 0 not in tokenizer.encode_prompt("a")


def test_where_end_and_special_tokens_are_read(tmp_path: Path) -> None:
    backend = train(["<a>", "<b>", "<c>"])

    def load(name: str, **files: Any) -> PretrainedTokenizer:
        return load_tokenizer(write(tmp_path / name, backend, **files), TextConfig())

    assert load("map", special_tokens_map={"eos_token": {"content": "<b>"}}).end_ids == (1,)
    own: dict[str, Any] = {"eos_token": "<c>"}
    other = {"eos_token": "<b>"}
    assert load("b", special_tokens_map=other, tokenizer_config=own).end_ids == (1,)
    own["added_tokens_decoder"] = {"0": {"content": "<a>"}}
    assert load("own", special_tokens_map=other, tokenizer_config=own).end_ids == (2,)
    union = load("union", config={"eos_token_id": 2}, generation_config={"eos_token_id": 0})
    assert (union.end_ids, union.pad_id, union.bos_id) == ((0, 2), 0, None)
    # A word of the vocabulary that the files call special is read as one token and not shown.
    backend.add_tokens(["answer"])
    marked = load("marked", tokenizer_config={"eos_token": "<a>", "pad_token": "answer"})
    assert marked.pad_id == 330
    assert marked.decode(marked.encode("an answer")) == "an "
    entry = {"331": {"content": "<far>", "special": True, "normalized": False}}
    extra = load("extra", tokenizer_config={"eos_token": "<a>", "added_tokens_decoder": entry})
    assert extra.encode("<far>") == [331]
    assert extra.decode([331, *extra.encode("two")]) == "two"
    with pytest.raises(UserError, match=r"looked for eos_token_id in generation_config\.json and"):
        load("none", config={"eos_token_id": None})
    with pytest.raises(UserError, match=r"config\.json: eos_token_id = '</s>' must hold ids"):
        load("text", config={"eos_token_id": "</s>"})
    with pytest.raises(UserError, match=r"eos_token is '<x>', which .*tokenizer\.json has no id"):
        load("absent", tokenizer_config={"eos_token": "<x>"})
    gap = {"eos_token": "<a>", "added_tokens_decoder": {"340": {"content": "<far>"}}}
    with pytest.raises(UserError, match=r"'<far>' the id 340, .*\(331 is the next\)"):
        load("gap", tokenizer_config=gap)
    with pytest.raises(UserError, match="split_special_tokens = true is not implemented"):
        load("split", tokenizer_config={"split_special_tokens": True})


def test_files_that_are_missing_or_broken(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"tokenizer\.json: no such file; a tokenizer is"):
        load_tokenizer(tmp_path, TextConfig())
    (tmp_path / "tokenizer.model").write_bytes(b"\0")
    with pytest.raises(UserError, match=r"only tokenizer\.model; .*\.save_pretrained\("):
        load_tokenizer(tmp_path, TextConfig())
    (tmp_path / "tokenizer.json").write_text('{"model": ')
    with pytest.raises(UserError, match=r"tokenizer\.json: not a tokenizer .*: EOF.* column"):
        load_tokenizer(tmp_path, TextConfig())
    write(tmp_path, train([]))
    for name in ("tokenizer_config", "special_tokens_map", "generation_config", "config"):
        file = tmp_path / f"{name}.json"
        file.write_text('{"eos_token_id": 1,')
        with pytest.raises(UserError, match=rf"{name}\.json:1: not valid JSON"):
            load_tokenizer(tmp_path, TextConfig())
        file.write_text("[]")
        with pytest.raises(UserError, match=rf"{name}\.json: must hold a JSON object"):
            load_tokenizer(tmp_path, TextConfig())
        file.write_text('{"eos_token_id": 1}')
    assert load_tokenizer(tmp_path, TextConfig()).end_ids == (1,)


def test_settings_that_need_a_chat(directories: dict[str, Path]) -> None:
    plain = directories["sentencepiece"]
    with pytest.raises(UserError, match=r"text\.chat = 'always', but .* has no chat template"):
        load_tokenizer(plain, TextConfig(chat="always"))
    with pytest.raises(UserError, match=r"text\.system = 'S' has no effect, for there is no chat"):
        load_tokenizer(plain, TextConfig(system="S"))
    with pytest.raises(UserError, match=r"text\.thinking = 'on' has no effect, for text\.chat = "):
        load_tokenizer(directories["qwen"], TextConfig(thinking="on", chat="never"))
    tokenizer = load_tokenizer(plain, TextConfig())
    with pytest.raises(UserError, match=r"needs a chat template.* text\.chat_template"):
        tokenizer.encode_prompt(CHAT)
    never = load_tokenizer(directories["qwen"], TextConfig(chat="never"))
    assert never.encode_prompt("Hi") == never.encode("Hi")
    assert never.encode_prompt(CHAT)[0] == 331
    system = load_tokenizer(directories["qwen"], TextConfig(system="S"))
    with pytest.raises(UserError, match=r"text\.system is set, and .* their own \('T'\)"):
        system.encode_prompt([{"role": "system", "content": "T"}, *CHAT])
    with pytest.raises(UserError, match="surrogate"):
        never.encode("a\ud83d")


def test_decode_drops_ids_outside(tokenizers: dict[str, PretrainedTokenizer]) -> None:
    tokenizer = tokenizers["qwen"]
    ids = tokenizer.encode("What is two")
    assert tokenizer.decode([-1, *ids, 335, 383, 2**40]) == "What is two"
    # Spaces before punctuation stay, and so do those in front.
    assert tokenizer.decode(tokenizer.encode(" a , don 't")) == " a , don 't"


@settings(max_examples=50, deadline=None)
@given(data=st.data(), name=st.sampled_from(sorted(MAKERS)))
def test_decode_rows_equals_decode(
    tokenizers: dict[str, PretrainedTokenizer], data: st.DataObject, name: str
) -> None:
    tokenizer = tokenizers[name]
    n, t = data.draw(st.integers(0, 4)), data.draw(st.integers(0, 6))
    ids = st.integers(-3, tokenizer.size + 9)
    rows = data.draw(st.lists(st.lists(ids, min_size=t, max_size=t), min_size=n, max_size=n))
    lengths = data.draw(st.lists(st.integers(0, t), min_size=n, max_size=n))
    tokens = np.array(rows, dtype=np.int32).reshape(n, t)
    texts = tokenizer.decode_rows(tokens, np.array(lengths, dtype=np.int32))
    assert texts == [tokenizer.decode(r[:k]) for r, k in zip(rows, lengths, strict=True)]


@settings(max_examples=200, deadline=None)
@given(text=st.text(), name=st.sampled_from(["llama", "qwen", "gemma"]))
def test_decode_undoes_encode(
    tokenizers: dict[str, PretrainedTokenizer], text: str, name: str
) -> None:
    assert tokenizers[name].decode(tokenizers[name].encode(text)) == text


@settings(max_examples=200, deadline=None)
@given(data=st.data(), name=st.sampled_from(sorted(MAKERS)))
def test_streamed_text_is_never_taken_back(
    tokenizers: dict[str, PretrainedTokenizer], data: st.DataObject, name: str
) -> None:
    tokenizer = tokenizers[name]
    any_ids = st.lists(st.integers(0, tokenizer.size + 2), max_size=12)
    ids = data.draw(any_ids | st.text(max_size=8).map(tokenizer.encode))
    shown = ""
    for end in range(len(ids) + 1):
        text = tokenizer.stream_text(ids[:end])
        assert text.startswith(shown)
        shown = text
    assert tokenizer.decode(ids).startswith(shown)


@pytest.mark.parametrize("name", ["qwen", "sentencepiece"])
def test_a_character_is_streamed_whole(
    tokenizers: dict[str, PretrainedTokenizer], name: str
) -> None:
    tokenizer = tokenizers[name]
    ids = tokenizer.encode("a\N{SLICE OF PIZZA}b")  # not in the corpus: several tokens
    texts = [tokenizer.stream_text(ids[: i + 1]) for i in range(len(ids))]
    assert texts[:3] == ["a"] * 3
    assert set(texts[3:]) <= {"a", "a\N{SLICE OF PIZZA}", "a\N{SLICE OF PIZZA}b"}
    assert texts[-1] == "a\N{SLICE OF PIZZA}b"


def test_bytes_are_joined_across_special_tokens(
    tokenizers: dict[str, PretrainedTokenizer],
) -> None:
    tokenizer = tokenizers["sentencepiece"]
    letter, end, stray = 3 + ord("A"), 2, 3 + 0x82
    assert tokenizer.decode([letter, end]) == "A"
    assert tokenizer.stream_text([letter, end]) == ""
    assert "A" not in tokenizer.decode([letter, end, stray])


def test_works_in_spawned_processes(
    directories: dict[str, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    tokenizer = load_tokenizer(directories["qwen"], TextConfig(system="Be brief."))
    tokens = np.tile(np.array(tokenizer.encode("the user"), dtype=np.int32), (64, 1))
    lengths = np.full(64, tokens.shape[1])
    tokenizer.decode_rows(tokens, lengths)  # the package's threads have run in the parent
    copied = pickle.loads(pickle.dumps(tokenizer))
    assert copied == tokenizer
    assert copied.encode_prompt(CHAT) == tokenizer.encode_prompt(CHAT)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(tokenizer.encode_prompt, (CHAT,)) == tokenizer.encode_prompt(CHAT)
        assert pool.apply(tokenizer.decode_rows, (tokens, lengths)) == ["the user"] * 64
    assert capfd.readouterr().err == ""
