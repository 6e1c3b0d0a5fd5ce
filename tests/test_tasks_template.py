import pytest

from jax_rl.errors import UserError
from jax_rl.tasks.template import parse_template


def test_columns_go_where_their_names_are_and_doubled_braces_are_braces():
    template = parse_template("Use {nums} for {target}: {{x}} {target}")
    values = {"nums": [3, 7], "target": 21, "other": None}
    assert template.render(values, place="") == "Use [3, 7] for 21: {x} 21"


def test_what_a_row_holds_is_never_read_as_a_template():
    assert parse_template("{q}!").render({"q": "{a} {{ %s \\"}, place="") == "{a} {{ %s \\!"


@pytest.mark.parametrize(
    "text",
    ["{q.__class__}", "{q[0]}", "{}", "{0}", "{q!r}", "{q:>10}", "{q:{w}}", "{ q}", "{a-b}"],
)
def test_only_plain_names_are_taken(text):
    with pytest.raises(UserError, match="not the plain name of a column"):
        parse_template(text)


@pytest.mark.parametrize("text", ["{q", "q}", "{q}}", "{q}{"])
def test_an_open_brace_is_refused(text):
    with pytest.raises(UserError, match=r"\{\{ and \}\} stand for braces"):
        parse_template(text)


def test_a_template_without_a_column_is_refused():
    with pytest.raises(UserError, match=r"has no \{column\}"):
        parse_template("What is {{x}}?")


def test_a_missing_column_is_refused_with_the_nearest():
    with pytest.raises(
        UserError,
        match=r"^a.csv:3: no column 'qestion' \(task.template\); did you mean 'question'\? Columns"
        r" there: question, answer",
    ):
        parse_template("{qestion}").render({"question": "x", "answer": "y"}, place="a.csv:3")


@pytest.mark.parametrize("value", [None, True, {"a": 1}, [{"role": "user"}], [[1]], "x\ud83d"])
def test_values_that_are_no_text_are_refused(value):
    with pytest.raises(UserError, match=r"^a.csv:3: column 'q' of task.template has"):
        parse_template("{q}").render({"q": value}, place="a.csv:3")


def test_a_prompt_of_blank_columns_is_empty():
    template = parse_template("{context}\n{q}?")
    assert template.render({"context": "", "q": "x"}, place="") == "\nx?"
    with pytest.raises(UserError, match=r"^a:1: the prompt is empty: no text in 'context', 'q'"):
        template.render({"context": " ", "q": "\n"}, place="a:1")
