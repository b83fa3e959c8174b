"""Operations on many records in Python and numpy. They state the rules: each has a compiled form that gives the same
answers, and tests run both on the same bytes. Used through columns.operations, which chooses. Any thread.
"""
