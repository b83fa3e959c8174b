"""`python -m embermq.cli`: the same as the command `embermq`."""

from embermq.cli.app import main

main()
