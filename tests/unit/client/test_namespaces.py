"""Names with and without their namespace."""

import pytest

from embermq.client.namespaces import with_namespace, without_namespace


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("orders", "shop%orders"),
        ("%RETRY%billing", "%RETRY%shop%billing"),
        ("%DLQ%billing", "%DLQ%shop%billing"),
        ("shop%orders", "shop%orders"),
        ("%RETRY%shop%billing", "%RETRY%shop%billing"),
        ("TBW102", "TBW102"),
        ("RMQ_SYS_TRACE_TOPIC", "RMQ_SYS_TRACE_TOPIC"),
        ("rmq_sys_x", "rmq_sys_x"),
        ("CID_RMQ_SYS_TRANS", "CID_RMQ_SYS_TRANS"),
        ("", ""),
    ],
)
def test_names_get_their_namespace_once(name: str, expected: str) -> None:
    assert with_namespace(name, "shop") == expected
    assert with_namespace(name, "") == name


@pytest.mark.parametrize("name", ["orders", "%RETRY%billing", "%DLQ%billing", "TBW102"])
def test_a_name_comes_back_without_its_namespace(name: str) -> None:
    assert without_namespace(with_namespace(name, "shop"), "shop") == name
    assert without_namespace(name, "") == name
