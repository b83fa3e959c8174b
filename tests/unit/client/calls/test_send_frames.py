"""Frames that are written directly are those of the general encoder."""

from hypothesis import given
from hypothesis import strategies as st

from embermq.client.calls import WireMessage
from embermq.client.calls.send_frames import encode_send
from embermq.remoting import encode_frame

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NUMBERS = st.integers(-(2**31), 2**31 - 1)


@given(
    st.builds(
        WireMessage,
        group=TEXTS,
        topic=TEXTS,
        body=st.binary(max_size=50),
        properties=TEXTS,
        queue_id=NUMBERS,
        sys_flag=NUMBERS,
        flag=NUMBERS,
        born_timestamp=st.integers(0, 2**62),
        reconsume_times=NUMBERS,
        is_batch=st.booleans(),
        default_topic=TEXTS,
        default_queues=NUMBERS,
    ),
    st.integers(0, 2**31 - 1),
)
def test_both_encoders_write_the_same(message: WireMessage, opaque: int) -> None:
    command = message.command()
    command.opaque = opaque
    assert encode_send(message, opaque) == encode_frame(command)
