"""What a store answers, as response codes: one place. Pure."""

from embermq.errors import StoreError
from embermq.model.status import FetchStatus, PutStatus
from embermq.remoting import ResponseCode

PUT_CODES = {
    PutStatus.PUT_OK: ResponseCode.SUCCESS,
    PutStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    PutStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
    PutStatus.SERVICE_NOT_AVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
    PutStatus.MESSAGE_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.PROPERTIES_SIZE_EXCEEDED: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.CREATE_MAPEDFILE_FAILED: ResponseCode.SYSTEM_ERROR,
    PutStatus.OS_PAGECACHE_BUSY: ResponseCode.SYSTEM_ERROR,
    PutStatus.UNKNOWN_ERROR: ResponseCode.SYSTEM_ERROR,
    PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED: ResponseCode.MESSAGE_ILLEGAL,
}
# The statuses under which a message is in the log: a producer gets its id.
STORED = frozenset(
    (
        PutStatus.PUT_OK,
        PutStatus.FLUSH_DISK_TIMEOUT,
        PutStatus.FLUSH_SLAVE_TIMEOUT,
        PutStatus.SLAVE_NOT_AVAILABLE,
    )
)
_PULL_CODES = {
    FetchStatus.FOUND: ResponseCode.SUCCESS,
    FetchStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    FetchStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    FetchStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    FetchStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    FetchStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    FetchStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}


def pull_code(status: FetchStatus, requested: int) -> ResponseCode:
    """An empty queue, and one that never was, is nothing new at offset 0 and a moved offset anywhere else."""
    if status in (FetchStatus.NO_MESSAGE_IN_QUEUE, FetchStatus.NO_MATCHED_LOGIC_QUEUE):
        return ResponseCode.PULL_NOT_FOUND if requested == 0 else ResponseCode.PULL_OFFSET_MOVED
    return _PULL_CODES[status]


def refusal_status(problem: StoreError) -> PutStatus:
    """The status an error of an append stands for."""
    status = getattr(problem, "status", PutStatus.UNKNOWN_ERROR)
    return PutStatus(status) if status in PutStatus.__members__ else PutStatus.UNKNOWN_ERROR
