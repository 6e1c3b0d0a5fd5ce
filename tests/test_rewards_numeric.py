import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_rl.rewards.base import Problem, Response
from jax_rl.rewards.numeric import Number, find_number, read_number, score_numeric


def score(answer, text):
    problem = Problem(prompt="p", content="p", answer=answer)
    return score_numeric(problem, Response(text=text, tokens=1, ended=True, limit=9))


RIGHT = [
    # plain text, as models of grade-school problems end
    ("1234", "So the answer is $1,234."),
    ("72", "72 clips"),
    ("72", "She sold 48 in April and 24 in May, which is **72**"),
    ("20", "It costs €20,"),
    ("1234.5", "She pays 1,234.50 dollars"),
    ("12", "The field measures 12 m^2"),
    ("12", "The field measures 12 m²."),
    ("5", "5/hour"),
    ("5", "the answer is...5"),
    ("14", "$9+5=14$"),
    ("1000000", "1\u00a0000\u00a0000"),
    ("7", "<b>7</b>"),
    ("3", "3.0"),
    ("0.5", ".5"),
    # signs
    ("-5", "-5"),
    ("-5", "−5"),
    ("-18", "-$18"),
    ("-18", "It loses $-18$"),
    ("5", "+5"),
    ("4", "9-5 is 9-4"),
    ("-5", r"\boxed{- 5}"),
    # fractions
    ("1/2", "1/2"),
    ("1/2", "0.5"),
    ("2.5", "2 1/2"),
    ("-2.5", "-2 1/2 cups"),
    ("5/2", "2½"),
    ("5/2", r"$2\frac{1}{2}$"),
    ("3/4", r"\boxed{\frac{3}{4}}"),
    ("-3/4", r"\boxed{-\dfrac{3}{4}}"),
    ("-3/4", r"\boxed{\tfrac{-3}{4}}"),
    ("3/4", r"\frac34"),
    ("1/3", r"\boxed{\left(\frac{1}{3}\right)}"),
    ("1/1000", "1/1,000"),
    # percent is a unit; where one side has it, it may be worked out
    ("50", "50%"),
    ("50%", "50"),
    ("50%", "50 percent"),
    ("0.5", "50%"),
    ("50%", "0.5"),
    ("60", r"\boxed{60\%}"),
    # scientific
    ("0.0015", "1.5e-3"),
    ("200000", r"\boxed{2 \times 10^5}"),
    ("2/100000", r"\boxed{2 \cdot 10^{-5}}"),
    # where the answer stands
    ("12", "The answer is 12 apples and 3 pears. #### 12"),
    ("8", "#### 5 + 3 = 8"),
    ("72", "#### 72\nQuestion: how many are 5 eggs?"),
    ("72", "#### 10\nNo, wait.\n#### 72"),
    ("5", r"not \boxed{4} but \boxed{5}, with 7 left"),
    ("5", r"#### 6 \boxed{5}"),
    ("5", r"\boxed{x = 5}"),
    ("5", r"\boxed{5} and \boxed{}"),
    ("18", r"\boxed{\$18.00}"),
    ("18", r"\boxed{18 \text{ cm}^2}"),
    ("18", r"\boxed{18\,\mathrm{cm}^{3}}"),
    ("4", r"\boxed{\text{4 apples}}"),
    ("90", r"\boxed{90^\circ}"),
    ("10000", r"\boxed{10{,}000}"),
    ("10000", r"\boxed{10,\!000}"),
    ("3", "it is $\\boxed 3$."),
    ("72", r"So \(72\)."),
    # forms of the answer
    (72, "72"),
    (0.1, "1/10"),
    ("#### 72", "72"),
    ("1,234", "1234"),
    (r"\boxed{3/4}", "0.75"),
    ("2+2 is $4\n#### 4", "4"),
]


@pytest.mark.parametrize(("answer", "text"), RIGHT)
def test_the_right_answer_in_its_many_forms(answer, text):
    assert score(answer, text) == 1.0


WRONG = [
    ("5", "-5"),
    ("-5", "5"),
    ("72", "73"),
    ("72", "172"),
    ("72", "7.2"),
    ("1234", "1,23"),
    ("1234", "1,2345"),
    ("5", "1.5"),
    ("5", ""),
    ("5", "five"),
    ("4", "x4"),
    ("4", "v1.4"),
    ("1/3", "0.33"),
    ("3", "3/0"),
    ("72", "72, or 73"),
    ("50%", "0.5%"),
    ("0.5%", "50%"),
    ("0.05", "50%"),
    ("1", "1e9999"),
    ("1", "1" * 100_000),
    # a box or a #### line with something else than one number
    ("12", r"\boxed{3} 12"),
    ("72", r"\boxed{1, 2, 72}"),
    ("1", r"\boxed{1, 2, 72}"),
    ("3", r"\boxed{3\pi}"),
    ("3", r"\boxed{\sqrt{3}}"),
    ("2", r"\boxed{\frac{x}{2}}"),
    ("1", r"\boxed{x^2+1}"),
    ("5", r"\boxed{x - 5}"),
    ("5", r"\boxed{5 + x}"),
    ("2", "#### 1 or 2"),
    ("12", "12 #### none"),
]


@pytest.mark.parametrize(("answer", "text"), WRONG)
def test_near_misses(answer, text):
    assert score(answer, text) == 0.0


@pytest.mark.parametrize("answer", [None, "", "x + 1", "3:2", "1 or 2", r"\boxed{2\pi}"])
def test_an_answer_that_is_not_one_number_fails_aloud(answer):
    with pytest.raises(ValueError, match="answer"):
        score(answer, "1")


def test_the_failure_names_the_place():
    problem = Problem(prompt="p", content="p", answer="none", place="rows.jsonl:7")
    with pytest.raises(ValueError, match=r"'none' is not one number \(rows.jsonl:7\)"):
        score_numeric(problem, Response(text="1", tokens=1, ended=True, limit=9))


@given(st.fractions(max_denominator=10**6), st.booleans())
def test_every_fraction_is_read_exactly(value, latex):
    top, bottom = abs(value.numerator), value.denominator
    written = rf"\frac{{{top}}}{{{bottom}}}" if latex else f"{top:,}/{bottom}"
    number = read_number(f"{'-' if value < 0 else ''}{written}")
    assert number is not None
    assert number.value == value


@given(st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-(10**9)))
def test_every_decimal_is_read_exactly(value):
    number = find_number(f"It is ${value:,f}.")
    assert number is not None
    assert number.value == Fraction(value)


@given(st.text(alphabet="0123456789.,-+/\\{}$%#= xeboxdfrac^\n½π", max_size=60))
def test_no_text_raises(text):
    find_number(text)
    find_number("\\boxed{" + text)
    read_number(text)


@pytest.mark.parametrize(
    "piece",
    ["1", "1,", "1,111", "1/", "1 ", "-", "$", " ", "\\boxed{", "\\boxed ", "\\frac{", "\\frac ",
     "\\text{", "{", ".1", "1e", "\\", "½", "####", "3 x 10 ^", "x^"],
)  # fmt: skip
def test_time_is_linear_in_the_text(piece):
    text = "5" + piece * (100_000 // len(piece))
    start = time.perf_counter()
    find_number(text)
    assert time.perf_counter() - start < 2.0  # about 0.1 s; a quadratic one takes minutes


@pytest.mark.parametrize("end", ["1", "1,1", "x", "1.5", "/0", "1/7"])
def test_time_is_linear_in_the_groups_of_thousands(end):
    text = "1" + ",111" * 16_000 + end  # 64,000 characters
    start = time.perf_counter()
    find_number(text)
    assert time.perf_counter() - start < 1.0  # about 0.15 s; a quadratic one takes 15 s


def test_a_number_of_too_many_groups_is_none_at_all():
    assert read_number("1" + ",000" * 49) == Number(value=Fraction(10**147), percent=False)
    for groups in (50, 51, 67, 102):  # more than 200 characters, and no part of it is read
        assert find_number("7 or 1" + ",000" * groups) is None
        assert find_number("7 or 1" + ",000" * groups + "/2") is None
        assert read_number("1" + ",000" * groups) is None
