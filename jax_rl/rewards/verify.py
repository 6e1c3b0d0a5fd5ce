"""Verifiers: does a response state the right answer? Nothing in it is ever evaluated as code.

Each takes time linear in the response, whatever the response is.
"""


def is_integer(response: str, answer: int) -> bool:
    """Whether the response is the integer `answer` in ASCII digits, and nothing besides.

    Leading zeros are accepted, since they leave the value as it is; a plus sign, spaces and
    separators are not. Digits are compared, not converted, so their number does not matter.
    """
    sign = "-" if answer < 0 else ""
    if not response.startswith(sign):
        return False
    digits = response[len(sign) :]
    return bool(digits) and (digits.lstrip("0") or "0") == str(abs(answer))


def is_distinct_sum(
    response: str, total: int, *, parts: int, digits: int, forbidden: str = ""
) -> bool:
    """Whether the response writes `total` as a sum of different numbers, such as "98+27+12".

    Args:
      response: the numbers in any order, joined by "+", and nothing besides.
      total: what they have to add up to.
      parts: how many numbers.
      digits: length of each number, which does not begin with 0.
      forbidden: the digit that occurs in none of them; empty forbids no digit.
    """
    if len(response) != parts * (digits + 1) - 1 or not response.isascii():
        return False
    terms = response.split("+")
    if len(terms) != parts or len(set(terms)) != parts or (forbidden and forbidden in response):
        return False
    if not all(len(term) == digits and term.isdigit() and term[0] != "0" for term in terms):
        return False
    return sum(map(int, terms)) == total
