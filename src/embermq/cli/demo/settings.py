"""What the demo's processes agree on: settings of the store, as its broker gets them and as it is opened afterwards.

Each acknowledgement waits for the disk. Files are small, so that there are several; a few megabytes fit on a disk that
is nearly full as well. Compiling kernels would only take the processor from the traffic that is being watched.
"""

from embermq.settings import StoreSettings

PROPERTIES = {
    "flushDiskType": "SYNC_FLUSH",
    "mappedFileSizeCommitLog": str(4 << 20),
    "mappedFileSizeConsumeQueue": "200000",
    "maxHashSlotNum": "20000",
    "maxIndexNum": "100000",
    "emberDiskFullPercent": "100",
    "emberDiskCleanPercent": "100",
    "emberPrefaultBytesMax": "0",
    "emberKernels": "never",
}


# What a client says first, when it is connected.
READY_LINE = "ready\n"


def demo_settings() -> StoreSettings:
    return StoreSettings.from_properties(PROPERTIES)
