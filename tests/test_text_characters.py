import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_rl.errors import UserError
from jax_rl.text.characters import ALPHABET, CharTokenizer

TOKENIZER = CharTokenizer()


def test_size_is_29_characters_and_three_specials():
    assert len(ALPHABET) == len(set(ALPHABET)) == 29
    assert (TOKENIZER.size, TOKENIZER.pad_id, TOKENIZER.bos_id) == (32, 0, 1)
    assert TOKENIZER.end_ids == (2,)


def test_ids_by_hand():
    assert TOKENIZER.encode("09+=") == [3, 12, 13, 17]
    assert TOKENIZER.encode_prompt("7=") == [1, 10, 17]
    assert TOKENIZER.decode([1, 10, 17, 2, 3, 0]) == "7=0"


@given(st.text(ALPHABET))
def test_round_trip(text):
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text
    assert TOKENIZER.decode(TOKENIZER.encode_prompt(text)) == text


def test_unknown_character_is_named_with_its_place():
    with pytest.raises(UserError, match=r"'x' at place 2 of '47x85='"):
        TOKENIZER.encode("47x85=")


def test_rows_end_at_their_length_and_not_at_a_token():
    tokens = np.array([[4, 5, 2, 9], [4, 2, 0, 0], [2, 7, 7, 7], [4, 0, 5, 6]])
    # Row 0 has an end token inside, row 2 is one end token, row 3 a pad token inside.
    lengths = np.array([4, 2, 1, 3])
    assert TOKENIZER.decode_rows(tokens, lengths) == ["126", "1", "", "12"]


def test_ids_beyond_the_tokenizer_do_not_vanish():
    # The policy's vocabulary may be larger; "1<40>3" must not be read as "13".
    tokens = np.array([[4, 40, 6]], np.int32)
    assert TOKENIZER.decode_rows(tokens, np.array([3])) == ["1\N{REPLACEMENT CHARACTER}3"]
    assert TOKENIZER.decode([4, 40, 6]) == "1\N{REPLACEMENT CHARACTER}3"


@given(st.data())
def test_rows_agree_with_decode(data):
    rows, width = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 6))
    token = st.integers(-1, 40)
    tokens = data.draw(st.lists(st.lists(token, min_size=width, max_size=width), min_size=rows))
    lengths = [data.draw(st.integers(0, width)) for _ in tokens]
    expected = [TOKENIZER.decode(row[:length]) for row, length in zip(tokens, lengths, strict=True)]
    assert TOKENIZER.decode_rows(np.array(tokens), np.array(lengths)) == expected
