"""Everything that touches the disk: one seam (`Files`), and the segmented files built on it.

    files.py       the seam: what the product asks of a file system, and the real one
    locking.py     the exclusive lock of a store directory
    memory.py      advice to the kernel about mapped memory
    pool.py        private buffers that take writes before the file does
    segment.py     one fixed-size file of the log
    segments.py    all of them, in order
    allocation.py  the thread that makes the next files ahead of the writer

Nothing here knows what a record is. Errors are plain OSError.
"""
