"""What kernels are made of: functions that are compiled into each kernel that uses them.

compiling.py       how kernels are compiled and where the compiled code is kept
memory.py          loads and stores at a byte position
crc.py             checksums of bodies
text.py            Java's hash of a text
property_text.py   facts read from the bytes of properties
json_text.py       values as JSON
objects.py         Python objects, read in place
"""
