import pytest

from jax_rl.errors import UserError
from jax_rl.tasks.columns import find_content, read_prompt

USER = {"role": "user", "content": "1 + 1?"}
SYSTEM = {"role": "system", "content": "Be brief."}


def read(value):
    return read_prompt({"q": value}, "q", field="task.prompt_column", place="a.jsonl:7")


def test_a_prompt_is_text_or_messages():
    assert read(" 1 + 1?\n") == " 1 + 1?\n"
    assert read([SYSTEM, USER]) == (SYSTEM, USER)
    # Parquet gives every message the keys of all.
    assert read([{**USER, "name": None}]) == (USER,)
    turns = [USER, {"role": "assistant", "content": ""}, USER]
    assert read(turns) == tuple(turns)


@pytest.mark.parametrize(
    ("value", "match"),
    [
        ("", "is empty: ''"),
        (" \n\t", "is empty"),
        ("half \ud83d", "half a surrogate pair, .* at character 5"),
        (None, "has None, where a text or a list of messages"),
        (3, "has 3, where a text or a list of messages"),
        ({"role": "user", "content": "x"}, "where a text or a list of messages"),
        ([], "empty prompt: a list without messages"),
        (["1 + 1?"], "message 0 is '1 \\+ 1\\?', where an object of role and content"),
        ([USER, {"role": "user"}], "message 1 is .* a message has a role and a content"),
        ([{**USER, "tool": "x"}], "message 0 is .* nothing else"),
        ([{"role": "user", "content": ["x"]}], "message 0 is .* both of them text"),
        ([{"role": "user", "content": " "}], "message 0: its content is empty"),
        ([{"role": " ", "content": "x"}], "message 0 has an empty role"),
        ([USER, {"role": "assistant", "content": "2"}], "ends with a message of the assistant"),
        (
            [USER, {"role": "assistant", "content": "\udc00"}, USER],
            "message 1: its content has half a surrogate",
        ),
    ],
)
def test_what_is_no_prompt_is_refused_with_its_place(value, match):
    with pytest.raises(UserError, match=r"^a.jsonl:7: column 'q' \(task.prompt_column\)") as error:
        read(value)
    assert error.match(match)


def test_content_does_not_see_white_space():
    assert find_content(" a\n b\tc ") == find_content("a b c") == "a b c"
    assert find_content("a bc") != find_content("a b c")
    assert find_content((SYSTEM, USER)) == "system: Be brief.\nuser: 1 + 1?"
    assert find_content((USER,)) != find_content((SYSTEM, USER))
