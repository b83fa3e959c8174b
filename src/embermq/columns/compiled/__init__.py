"""Loops over raw bytes, compiled by numba: many records per call, columns of int64 out.

The only place that knows numba. Importing a module of this package compiles its kernels, or loads them from
the cache: 6 s once, then 0.2 s, numba itself another 0.2-0.4 s and some 80 MB. So they are loaded lazily, through
columns.operations, when there is enough work to pay for it.
    parts/    what kernels are made of: how they are compiled, bytes in memory, checksums, text, JSON, Python objects
    sends/    frames of sends into rows of a run, and answers to them

Every other file is an operation of the same name in `columns.plain`, or serves one.
Every kernel does what a function of `columns.plain` does, and says so; tests run both on the same bytes.
No kernel raises or trusts a length: each answers with counts and a code. Any thread may call; the GIL is
released inside.
"""
