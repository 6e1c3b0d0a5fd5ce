"""Chat templates equal transformers' rendering, and fail with one message within bounds."""

import contextlib
import datetime
import json
import types
import warnings
from pathlib import Path
from typing import Any

import pytest

from jax_rl.errors import UserError
from jax_rl.text import sandbox
from jax_rl.text.chat import ChatTemplate, TemplateSource, load_template

# Own wordings; each has the structure of the family that it is named after.
QWEN25 = r"""
{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- 'You answer.' }}
    {%- endif %}
    {{- "\n\n# Functions\n<tools>" }}
    {%- for tool in tools %}
        {{- "\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\n</tools><|im_end|>\n" }}
{%- elif messages[0]['role'] == 'system' %}
    {{- '<|im_start|>system\n' + messages[0]['content'] + '<|im_end|>\n' }}
{%- else %}
    {{- '<|im_start|>system\nYou answer.<|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == "user" or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>assistant' }}
        {%- for call in message.tool_calls %}
            {%- if call.function is defined %}
                {%- set call = call.function %}
            {%- endif %}
            {{- '\n<call>' ~ call.name ~ ' ' ~ loop.index ~ ' ' }}
            {{- call.arguments | tojson }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.index0 == 0 or messages[loop.index0 - 1].role != "tool" %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\n<result>' + message.content }}
        {%- if loop.last or messages[loop.index0 + 1].role != "tool" %}
            {{- '<|im_end|>\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
"""
QWEN3 = r"""
{%- if messages[0].role == 'system' %}
    {{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
{%- endif %}
{%- set state = namespace(searching=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- if state.searching and message.role == "user" %}
        {%- set state.searching = false %}
        {%- set state.last = messages|length - 1 - loop.index0 %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == "user" %}
        {{- '<|im_start|>user\n' + message.content + '<|im_end|>\n' }}
    {%- elif message.role == "assistant" %}
        {%- set content = message.content.split('</think>')[-1].lstrip('\n') %}
        {%- set thought = '' %}
        {%- if '</think>' in message.content %}
            {%- set thought = message.content.split('</think>')[0].split('<think>')[-1] %}
        {%- endif %}
        {%- if loop.index0 > state.last and thought %}
            {{- '<|im_start|>assistant\n<think>\n' + thought.strip('\n') + '\n</think>\n\n' }}
            {{- content }}
        {%- else %}
            {{- '<|im_start|>assistant\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %}
{%- endif %}
"""
LLAMA3 = r"""{{- bos_token }}
{%- if not today is defined %}
    {%- if strftime_now is defined %}
        {%- set today = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set today = "1 Jan 2024" %}
    {%- endif %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{#- a comment, which is not part of the text #}
{{- "<|head|>system<|/head|>\n\nIt is " + today + ".\n" }}
{%- if tools is not none %}
    {%- for tool in tools %}
        {{- tool | tojson(indent=4) }}
        {{- "\n\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("One call at a time!") }}
        {%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '<|head|>assistant<|/head|>\n\n{"name": "' + call.name + '", "parameters": ' }}
        {{- call.arguments | tojson }}
        {{- "}<|eot_id|>" }}
    {%- elif message.role == "tool" %}
        {{- "<|head|>ipython<|/head|>\n\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- else %}
        {{- '<|head|>' + message['role'] + '<|/head|>\n\n' + message['content'] | trim }}
        {{- '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|head|>assistant<|/head|>\n\n' }}
{%- endif %}
"""
GEMMA = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}"
    "{{ raise_exception('No system turn here') }}{% endif %}"
    "{% for message in messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('User and assistant must take turns') }}{% endif %}"
    "{% if (message['role'] == 'assistant') %}{% set role = 'model' %}"
    "{% else %}{% set role = message['role'] %}{% endif %}"
    "{{ '<turn>' + role + '\n' + message['content'] | trim + '</turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{'<turn>model\n'}}{% endif %}"
)
LOOPS = """{% for message in messages %}
    {% if message.role == 'system' %}
        {% continue %}
    {% endif %}
    {% if loop.index > 3 %}
        {% break %}
    {% endif %}
[{{ message.role }}] {% generation %}{{ message.content }}
{% endgeneration %}
{% endfor %}
{{ {"b": "é<&>", "a": [1, none]} | tojson(sort_keys=true, separators=(",", ":")) }}
{{ eos_token }}|{{ never_given }}|
"""
TEMPLATES = {"qwen25": QWEN25, "qwen3": QWEN3, "llama3": LLAMA3, "gemma": GEMMA, "loops": LOOPS}

SYSTEM = {"role": "system", "content": " Be brief.\n"}
USER = {"role": "user", "content": "2 + 2? <b>&é</b> \n"}
ANSWER = {"role": "assistant", "content": "<think>\neasy\n</think>\n\nFour."}
TOOLS = [
    {
        "type": "function",
        "function": {"name": "add", "description": "a + b <é>", "parameters": {"type": "object"}},
    }
]
CALL: dict[str, Any] = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"type": "function", "function": {"name": "add", "arguments": {"a": "é<"}}}],
}
RESULT = {"role": "tool", "content": "4"}
CHATS: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]] | None]] = {
    "user": ([USER], None),
    "system and user": ([SYSTEM, USER], None),
    "several turns": ([USER, ANSWER, USER], None),
    "answered": ([SYSTEM, USER, ANSWER], None),
    "tools": ([SYSTEM, USER], TOOLS),
    "calls": ([USER, CALL, RESULT, RESULT], TOOLS),
}
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}


def make(text: str) -> ChatTemplate:
    return ChatTemplate(TemplateSource(text, "DIR/chat_template.jinja"))


@pytest.fixture(scope="module")
def reference() -> Any:
    """A tokenizer of transformers, to render with."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        transformers = pytest.importorskip("transformers")
        tokenizers = pytest.importorskip("tokenizers")
        backend = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<s>": 0, "</s>": 1}))
        return transformers.PreTrainedTokenizerFast(tokenizer_object=backend, **SPECIAL)


@pytest.mark.parametrize("thinking", [None, True, False])
@pytest.mark.parametrize("chat", CHATS)
@pytest.mark.parametrize("name", TEMPLATES)
def test_equals_transformers(reference: Any, name: str, chat: str, thinking: bool | None) -> None:
    messages, tools = CHATS[chat]
    told = {} if thinking is None else {"enable_thinking": thinking}
    reference.chat_template = TEMPLATES[name]
    for opened in (True, False):
        expected, refusal = "", ""
        try:
            expected = reference.apply_chat_template(
                messages, tools=tools, add_generation_prompt=opened, tokenize=False, **told
            )
        except Exception as error:  # what a template raises is of any type
            refusal = str(error)
        with pytest.raises(UserError) if refusal else contextlib.nullcontext() as raised:
            text = make(TEMPLATES[name]).render(
                messages,
                tools=tools,
                add_generation_prompt=opened,
                enable_thinking=thinking,
                special_tokens=SPECIAL,
            )
        if raised is not None:
            assert refusal in str(raised.value)
        else:
            assert text == expected


def test_qwen_by_hand() -> None:
    assert make(QWEN25).render([{"role": "user", "content": "Hi"}]) == (
        "<|im_start|>system\nYou answer.<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    turns = [USER, ANSWER, {"role": "user", "content": "3?"}]
    text = make(QWEN3).render(turns, enable_thinking=False)
    assert text == (
        "<|im_start|>user\n2 + 2? <b>&é</b> \n<|im_end|>\n"
        "<|im_start|>assistant\nFour.<|im_end|>\n"
        "<|im_start|>user\n3?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )
    assert make(QWEN3).render(turns, enable_thinking=True) == text.removesuffix(
        "<think>\n\n</think>\n\n"
    )
    assert "easy" in make(QWEN3).render([USER, ANSWER])


def test_llama_writes_the_date_and_gemma_has_no_system_turn() -> None:
    today = datetime.datetime.now().strftime("%d %b %Y")
    text = make(LLAMA3).render([SYSTEM, USER], special_tokens=SPECIAL)
    assert text.startswith(f"<s><|head|>system<|/head|>\n\nIt is {today}.\nBe brief.<|eot_id|>")
    with pytest.raises(UserError, match=r"chat_template\.jinja.* line 1: No system turn here"):
        make(GEMMA).render([SYSTEM, USER], special_tokens=SPECIAL)


def test_loops_by_hand() -> None:
    text = make(LOOPS).render([SYSTEM, USER | {"content": "Hi"}], special_tokens=SPECIAL)
    assert text == '[user] Hi\n{"a":[1,null],"b":"é<&>"}\n</s>||'


def test_sources_in_their_order(tmp_path: Path) -> None:
    hi = [{"role": "user", "content": "Hi"}]

    def rendered(**kwargs: Any) -> str:
        template = load_template(tmp_path)
        assert template is not None
        return template.render(hi, **kwargs)

    assert load_template(tmp_path) is None
    config = tmp_path / "tokenizer_config.json"
    config.write_text(json.dumps({"bos_token": "<s>"}))
    assert load_template(tmp_path) is None
    config.write_text(json.dumps({"chat_template": "one"}))
    assert rendered() == "one"
    named = [{"name": "default", "template": "two"}, {"name": "tool_use", "template": "three"}]
    config.write_text(json.dumps({"chat_template": named}))
    assert (rendered(), rendered(tools=TOOLS)) == ("two", "three")
    (tmp_path / "chat_template.json").write_text(json.dumps({"chat_template": "four"}))
    assert rendered(tools=TOOLS) == "four"
    (tmp_path / "chat_template.jinja").write_text("five {{ messages[0].content }}\n")
    assert rendered(tools=TOOLS) == "five Hi"
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "tool_use.jinja").write_text("six")
    assert (rendered(), rendered(tools=TOOLS)) == ("five Hi", "six")
    other = tmp_path / "other.jinja"
    other.write_text("seven")
    template = load_template(tmp_path, override=other)
    assert template is not None
    assert template.render(hi, tools=TOOLS) == "seven"


def test_sources_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"absent\.jinja: cannot be read: No such file"):
        load_template(tmp_path, override=tmp_path / "absent.jinja")
    config = tmp_path / "tokenizer_config.json"
    config.write_text('{\n"chat_template": \n')
    with pytest.raises(UserError, match=r"tokenizer_config\.json:3: not valid JSON"):
        load_template(tmp_path)
    config.write_text(json.dumps({"chat_template": [{"name": "rag", "template": "x"}]}))
    with pytest.raises(UserError, match=r"one of them 'default'; found \['rag'\]"):
        load_template(tmp_path)
    config.write_text(json.dumps({"chat_template": 3}))
    with pytest.raises(UserError, match="found int"):
        load_template(tmp_path)
    (tmp_path / "chat_template.jinja").write_bytes(b"a\xff")
    with pytest.raises(UserError, match=r"chat_template\.jinja: not UTF-8 text at byte 1"):
        load_template(tmp_path)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a\n{{ raise_exception('not so') }}", "in line 2: not so"),
        ("a\n{% for x in messages %}", "in line 2: Unexpected end"),
        ("\n\n{{ clock() }}", "in line 3: 'clock' is undefined"),
        ("{{ 1 | shout }}", "in line 1: No filter named 'shout'"),
        ("{{ 'a' + messages }}", "TypeError"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{% include 'other' %}", "no loader"),
        ("{{ lipsum() }}", "'lipsum' is undefined"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "macros call each other"),
        ("{{ range(10 ** 6) | list }}", "Range too big"),
        ("{{ 'x' * 99999999 }}", "in line 1: a number above 10000000"),
        ("{{ 10 ** 10 ** 10 }}", "makes a value above"),
        ("{% set n = namespace(s='x' * 9999999) %}{{ n.s + n.s }}", "'\\+' makes a value above"),
        (
            "{% set n = namespace(s='xx') %}{% for i in range(99) %}{% set n.s = n.s ~ n.s %}"
            "{% endfor %}",
            "makes a value above",
        ),
        (
            "{% set s = 'x' * 999999 %}{% for i in range(99) %}{{ s }}{% endfor %}",
            "output is longer",
        ),
    ],
)
def test_a_template_that_fails(text: str, reason: str) -> None:
    with pytest.raises(UserError, match=rf"DIR/chat_template\.jinja: .*{reason}"):
        make(text).render([USER])


@pytest.mark.parametrize(
    "text",
    [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) ~ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    ],
)
def test_a_template_without_end(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sandbox, "SECONDS", 0.2)
    with pytest.raises(UserError, match=r"runs for more than 0\.2 seconds"):
        make(text).render([USER])
    # The next rendering has its own time.
    assert make("{% for i in range(3) %}{{ i }}{% endfor %}").render([USER]) == "012"


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ({"content": "Hi"}, "message 1 of a chat has role None"),
        ({"role": "", "content": "Hi"}, "has role ''"),
        ({"role": "user"}, "has content None"),
        ({"role": "user", "content": ["Hi"]}, r"has content \['Hi'\]"),
        ("Hi", "is 'Hi'; a mapping"),
        ({"role": "user", "content": "Hi", "x": types}, "what JSON can hold"),
    ],
)
def test_messages_of_bad_form(message: Any, reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        make(QWEN25).render([USER, message])


def test_a_chat_of_nothing() -> None:
    with pytest.raises(UserError, match="no messages"):
        make("x").render([])
