"""Hashes of texts: equal for equal texts, wherever they lie, and different for others."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from embermq.columns.plain.text_hashes import NO_TEXT, mixed, text_hash, text_hashes


@given(st.lists(st.none() | st.binary(max_size=40), min_size=1, max_size=20), st.binary(max_size=9))
def test_equal_texts_have_equal_hashes_wherever_they_lie(texts: list[bytes | None], behind: bytes) -> None:
    data = np.frombuffer(b"".join(text or b"" for text in texts) + behind or b"\0", np.uint8)
    lengths = np.array([-1 if text is None else len(text) for text in texts], np.int64)
    at = np.cumsum([0, *np.maximum(lengths, 0)])[:-1]
    at[lengths < 0] = -1
    found = text_hashes(data, at, lengths)
    for text, value in zip(texts, found.tolist(), strict=True):
        assert value == (int(NO_TEXT) if text is None else text_hash(text))
    assert len(set(found.tolist())) == len(set(texts))


def test_hashes_of_texts_that_hardly_differ() -> None:
    texts = [b"", b"\0", b"\0\0", b"a", b"a\0", b"aaaaaaaa", b"aaaaaaaaa", b"\0aaaaaaaa", b"aaaaaaaab", b"baaaaaaaa"]
    texts += [b"%016d" % n for n in range(20_000)] + [b"%d" % n for n in range(20_000)]
    assert len({text_hash(text) for text in texts[:10]}) == 10
    data = np.frombuffer(b"".join(texts), np.uint8)
    lengths = np.array([len(text) for text in texts], np.int64)
    found = text_hashes(data, np.cumsum(lengths) - lengths, lengths)
    assert len(np.unique(found)) == len(texts)
    one, other = found[:100], found[100:200]
    assert (mixed(one, other) != mixed(other, one)).all()
