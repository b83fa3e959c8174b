"""The command `embermq`: a noun, then a verb; one file a noun.

    app.py        the command itself: finds nouns, turns errors into one line and an exit code
    output.py     how answers are shown: text for people, JSON for programs
    store/        look into, check, dump, load and append to a store directory; one file a verb
    spark/        what Spark does with stores; one file a verb
    network/      what is asked of a running cluster: topic, group, message, cluster, and the verbs of broker
    given.py      what commands that make messages are given
    settings.py   what can be set, and whether a file sets it well
    broker.py     a broker in the foreground: its command line; with broker_process.py (its life) and addresses.py
    namesrv.py    a name server in the foreground
    serving.py    what both share: their log, signals, a start that fails
    demo/         a broker with its clients, killed in the middle and checked; Spark follows its store

Nothing below imports from here. A noun's module is loaded only when the noun is called.
"""
