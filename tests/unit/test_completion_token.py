"""The token of an external step says what it said, and nothing else is taken for one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rival_client.errors import InvalidToken
from rival_client.model.completion_token import CompletionToken

TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=60).filter(str.strip)
TOKENS = st.builds(CompletionToken, TEXT, TEXT, st.integers(0, 2**31 - 2))


@given(TOKENS)
def test_a_token_comes_back_as_it_was_and_is_safe_in_an_address(token: CompletionToken) -> None:
    text = str(token)
    assert CompletionToken.parse(text) == token
    assert text.replace("_", "a").replace("-", "a").isalnum()
    assert text.isascii()


@given(TOKENS, TOKENS)
def test_two_tokens_are_the_same_text_only_if_they_mean_the_same(one: CompletionToken, other: CompletionToken) -> None:
    assert (str(one) == str(other)) == (one == other)


@given(TOKENS, st.data())
def test_a_piece_of_a_token_or_one_with_another_letter_is_refused(token: CompletionToken, data: st.DataObject) -> None:
    text = str(token)
    at = data.draw(st.integers(0, len(text) - 1))
    letter = data.draw(st.sampled_from("ABCabc019-_").filter(lambda one: one != text[at]))
    # The last letter may hold bits that mean nothing.
    if at < len(text) - 1:
        with pytest.raises(InvalidToken):
            CompletionToken.parse(text[:at] + letter + text[at + 1 :])
    with pytest.raises(InvalidToken):
        CompletionToken.parse(text[:at])


@pytest.mark.parametrize("nonsense", ["", "rvl_", "rvl_AAAA", "rvl_ö", "order-42", 7, None, b"rvl_", "rvl_" + "A" * 99])
def test_anything_else_is_refused(nonsense: object) -> None:
    with pytest.raises(InvalidToken):
        CompletionToken.parse(nonsense)
