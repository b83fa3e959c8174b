"""Stores with random damage in any of their files: an answer or one line, never a traceback, and nothing is written."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import golden
from tests.unit.cli.store.conftest import Command

NAMES = ["basic", "index", "retry-dlq", "transaction", "delay", "cqext", "unclean", "lmq"]
WORDS = [
    ["info"],
    ["dump"],
    ["dump", "--body", "text", "--raw"],
    ["dump", "--since", "2023-11-14T22:14:00Z"],
    ["fetch", "RetryTopic", "0"],
    ["find", "--topic", "RetryTopic", "--key", "rk0"],
    ["trace", "--key", "rk0"],
    ["trace", "--key", "txk2"],
    ["get", "--at", "0"],
    ["top", "--once", "--interval", "0.01"],
]


def damage(store: Path, chance: random.Random) -> None:
    """Change one file in one of several ways."""
    file = chance.choice(sorted(path for path in store.rglob("*") if path.is_file()))
    raw = bytearray(file.read_bytes())
    at = chance.randrange(len(raw) + 1)
    match chance.randrange(6):
        case 0:
            for _ in range(chance.randint(1, 20)):
                raw[at : at + 1] = chance.randbytes(1)
                at = chance.randrange(len(raw) + 1)
        case 1:
            del raw[at:]
        case 2:
            raw = bytearray(len(raw))
        case 3:
            file.unlink()
            return
        case 4:
            raw += chance.randbytes(chance.randint(1, 100))
        case 5:
            raw[at : at + 8] = chance.choice([bytes(8), b"\xff" * 8])
    file.write_bytes(raw)


@pytest.mark.parametrize("seed", range(16))
@pytest.mark.slow(2)
def test_damaged_stores(command: Command, restored: Callable[[str], Path], seed: int) -> None:
    chance = random.Random(seed)
    store = restored(NAMES[seed % len(NAMES)])
    for _ in range(chance.randint(1, 4)):
        damage(store, chance)
    before = golden.tree_state(store)
    for words in WORDS:
        ran = command(words[0], store, *words[1:], "--output", "json")
        assert ran.code in (0, 1, 2), (words, ran.err)
        assert ran.out or ran.err, words
    assert golden.tree_state(store) == before
