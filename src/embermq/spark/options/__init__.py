"""Options and columns of the format, as tables.

    read_options.py, write_options.py, values.py   every option: name, default, meaning, value
    schema.py                                      the columns a message has in Spark

Other packages import from this face, not from the modules behind it.
"""
