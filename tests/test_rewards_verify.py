import time

import pytest

from jax_rl.rewards.verify import is_distinct_sum, is_integer


@pytest.mark.parametrize(
    ("response", "answer", "right"),
    [
        ("132", 132, True),
        ("0132", 132, True),
        ("0", 0, True),
        ("000", 0, True),
        ("-7", -7, True),
        ("-07", -7, True),
        ("133", 132, False),
        ("1320", 132, False),
        ("13", 132, False),
        ("", 0, False),
        ("-", -7, False),
        ("--7", -7, False),
        ("7", -7, False),
        ("-0", 0, False),
        ("+132", 132, False),
        (" 132", 132, False),
        ("132=", 132, False),
        ("1_32", 132, False),
        ("132.0", 132, False),
        ("100+32", 132, False),
        ("\uff11\uff13\uff12", 132, False),  # full-width digits
        ("\u00b9\u00b3\u00b2", 132, False),  # superscripts
        ("\u0661\u0663\u0662", 132, False),  # Arabic-Indic digits
    ],
)
def test_integer(response, answer, right):
    assert is_integer(response, answer) is right


@pytest.mark.parametrize(
    ("response", "right"),
    [
        ("98+27+12", True),
        ("12+98+27", True),
        ("27+98+11", False),  # 136
        ("98+27+13", False),  # 138
        ("98+39", False),  # two parts
        ("98+17+11+11", False),
        ("49+49+39", False),  # twice the same
        ("85+40+12", False),  # forbidden 5
        ("098+27+12", False),
        ("098+27+2", False),
        ("98+027+1", False),
        ("98+27+12+", False),
        ("98++27+2", False),
        ("++", False),
        ("++++++++", False),
        ("", False),
        ("98+27-12", False),
        ("9\uff18+27+12", False),
        ("98+27+1\u00b2", False),
        ("__import", False),
    ],
)
def test_distinct_sum_of_137(response, right):
    assert is_distinct_sum(response, 137, parts=3, digits=2, forbidden="5") is right


def test_distinct_sum_leading_zero_and_no_forbidden_digit():
    assert not is_distinct_sum("09+91", 100, parts=2, digits=2)
    assert is_distinct_sum("45+55", 100, parts=2, digits=2)


@pytest.mark.parametrize("garbage", ["9" * 1_000_000, "9**" * 300_000, "1+" * 500_000])
def test_garbage_of_a_million_characters_takes_no_time(garbage):
    start = time.perf_counter()
    assert not is_integer(garbage, 132)
    assert not is_distinct_sum(garbage, 137, parts=3, digits=2, forbidden="5")
    assert time.perf_counter() - start < 0.5
