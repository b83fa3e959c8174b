"""Trace records of producers and consumers, as RocketMQ's clients write them."""

from embermq.client.admin.trace_records import trace_steps

PUB = (
    "Pub\x011700000000000\x01DefaultRegion\x01shop\x01orders\x01U1\x01paid\x01o-1 o-2\x01127.0.0.1:10911\x0112\x013\x01"
    "0\x017F0001\x01true\x02"
)
BEFORE = "SubBefore\x011700000001000\x01DefaultRegion\x01billing\x01R1\x01U1\x012\x01o-1\x02"
AFTER = "SubAfter\x01R1\x01U1\x0145\x01true\x01o-1\x010\x011700000001045\x01billing\x02"
END = (
    "EndTransaction\x011700000000500\x01DefaultRegion\x01shop\x01orders\x01U1\x01paid\x01o-1\x01127.0.0.1:10911\x012\x01T1"
    "\x01COMMIT_MESSAGE\x01true\x02"
)


def test_a_send() -> None:
    (step,) = trace_steps([(PUB.encode(), "10.0.0.1")])
    assert (step.what, step.timestamp, step.group, step.topic) == ("send", 1_700_000_000_000, "shop", "orders")
    assert (step.msg_id, step.tags, step.keys, step.status) == ("U1", "paid", "o-1 o-2", "success")
    assert (step.cost_ms, step.body_length, step.message_type, step.offset_msg_id) == (3, 12, "normal", "7F0001")
    assert (step.client_host, step.store_host, step.region) == ("10.0.0.1", "127.0.0.1:10911", "DefaultRegion")


def test_a_failed_send_and_one_of_an_old_client_without_the_last_fields() -> None:
    failed = PUB.replace("\x01true\x02", "\x01false\x02")
    old = PUB.replace("\x017F0001\x01true\x02", "\x02")
    assert trace_steps([(failed.encode(), None)])[0].status == "failed"
    (step,) = trace_steps([(old.encode(), None)])
    assert (step.status, step.offset_msg_id, step.client_host) == ("success", None, None)


def test_both_halves_of_a_delivery_are_one_step_in_whatever_order_they_come() -> None:
    for bodies in ([BEFORE, AFTER], [AFTER, BEFORE], [BEFORE + AFTER]):
        (step,) = trace_steps([(one.encode(), "10.0.0.2") for one in bodies])
        assert (step.what, step.timestamp, step.group, step.msg_id) == ("consume", 1_700_000_001_000, "billing", "U1")
        assert (step.status, step.cost_ms, step.retry_times, step.request_id) == ("success", 45, 2, "R1")


def test_a_delivery_without_its_end_is_unknown_and_without_its_beginning_has_the_end() -> None:
    assert trace_steps([(BEFORE.encode(), None)])[0].status == "unknown"
    (step,) = trace_steps([(AFTER.encode(), None)])
    assert (step.status, step.timestamp, step.group) == ("success", 1_700_000_001_045, "billing")


def test_results_of_consumers_have_names() -> None:
    for code, name in (("1", "timeout"), ("2", "exception"), ("3", "returned null"), ("4", "failed"), ("9", "9")):
        record = f"SubAfter\x01R1\x01U1\x0145\x01false\x01o-1\x01{code}\x02"
        assert trace_steps([(record.encode(), None)])[0].status == name


def test_the_end_of_a_transaction() -> None:
    (step,) = trace_steps([(END.encode(), None)])
    assert (step.what, step.status, step.transaction_id, step.from_check) == (
        "end transaction",
        "commit_message",
        "T1",
        True,
    )
    assert step.message_type == "commit"


def test_steps_come_in_the_order_of_time() -> None:
    steps = trace_steps([((AFTER + BEFORE + END).encode(), None), (PUB.encode(), None)])
    assert [step.what for step in steps] == ["send", "end transaction", "consume"]


def test_what_cannot_be_read_hides_nothing_else() -> None:
    noise = "Pub\x01yesterday\x01\x02Nothing\x01\x02\x02SubBefore\x02\xff\x02"
    assert [step.what for step in trace_steps([(noise.encode("latin-1") + PUB.encode(), None)])] == ["send"]
    assert trace_steps([(b"", None), (b"\x00\xff", None)]) == []
