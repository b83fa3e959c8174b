"""Numbers that do not fit a record, and things that are no numbers, are refused at once."""

import enum
from typing import Any

import numpy as np
import pytest

from embermq import Host, Message, StoreSettings
from embermq.errors import MessageRejected
from embermq.model.properties import has_meaning_to_store
from embermq.store.append.admission import Admission


class Again(enum.IntEnum):
    TWICE = 2


@pytest.fixture
def admission() -> Admission:
    return Admission(StoreSettings(), 1 << 20, Host("127.0.0.1", 10911))


@pytest.mark.parametrize(
    "name", ["flag", "sys_flag", "reconsume_times", "prepared_transaction_offset", "born_timestamp"]
)
@pytest.mark.parametrize("wrong", ["1", 1.5, b"1", (1,), 2**63, -(2**63) - 1], ids=repr)
def test_what_is_no_number_of_its_size(admission: Admission, name: str, wrong: Any) -> None:
    fields: dict[str, Any] = {name: wrong}
    with pytest.raises(MessageRejected, match=name):
        admission.admit(Message("T", **fields))


@pytest.mark.parametrize("name", ["flag", "sys_flag", "reconsume_times", "prepared_transaction_offset"])
@pytest.mark.parametrize("number", [1, -(2**31), 2**31 - 1, True, Again.TWICE, np.int64(3)], ids=repr)
def test_what_is_one(admission: Admission, name: str, number: Any) -> None:
    fields: dict[str, Any] = {name: number}
    admitted = admission.admit(Message("T", **fields))
    kept = ~0x30 if name == "sys_flag" else ~0  # The address bits are computed.
    assert getattr(admitted, name) == int(number) & kept


@pytest.mark.parametrize("name", ["born_host", "store_host"])
@pytest.mark.parametrize("wrong", [Host("1.2.3.4", 2**31), Host("nowhere", 1), "1.2.3.4:5", 7], ids=repr)
def test_what_is_no_host(admission: Admission, name: str, wrong: Any) -> None:
    fields: dict[str, Any] = {name: wrong}
    with pytest.raises(MessageRejected, match=name):
        admission.admit(Message("T", **fields))


def test_properties_with_a_meaning_are_found_by_name() -> None:
    for text in (
        b"DELAY\x013",
        b"a\x01b\x02WAIT\x01false",
        b"WAIT\x01true\x02WAIT\x01no",
        b"INNER_MULTI_DISPATCH\x01q",
        b"XDELAY\x01",
        b"TIMER_DELIVER_MS\x011700000000000",
        b"a\x01b\x02TIMER_DELAY_MS\x015",
        b"TIMER_DELAY_SEC\x015",
    ):
        assert has_meaning_to_store(text)
    assert has_meaning_to_store(b"WAIT\x01true\x02WAIT\x01no")
    for text in (b"WAIT\x01true", b"a\x01b\x02WAIT\x01true\x02c\x01d"):  # Every Java client says so.
        assert not has_meaning_to_store(text)
    for text in (
        b"",
        b"TAGS\x01DELAY",
        b"KEYS\x01WAIT\x02TAGS\x01LOW",
        b"Level\x01W",
        b"UNIQ_KEY\x017F",
        b"TAGS\x01TIMER_DELAY_SEC",
    ):
        assert not has_meaning_to_store(text)
