"""The command `embermq`: a noun, then a verb; one file a noun.

    app.py        the command itself: finds nouns, turns errors into one line and an exit code
    output.py     how answers are shown: text for people, JSON for programs
    store.py      append to and read from a store directory
    settings.py   what can be set, and whether a file sets it well
    demo.py       a store that is written, killed, recovered and read (with orders.py and order_writer.py)

Nothing below imports from here. A noun's module is loaded only when the noun is called.
"""
