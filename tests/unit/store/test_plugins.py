"""Plugins: what is not overridden passes through, and the first named is outermost."""

import copy
import sys
from pathlib import Path
from typing import Any

import pytest

from embermq.errors import SettingsError
from embermq.store.plugins import StorePlugin, chain, load_factories


class Innermost:
    """Stands for a store."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.max_physical = 42
        self._secret = 1

    def append(self, text: str) -> str:
        self.calls.append(text)
        return f"stored {text}"

    def fetch(self, *args: Any, **options: Any) -> tuple[Any, ...]:
        return (*args, options)

    def close(self) -> None:
        self.calls.append("closed")

    def __enter__(self) -> "Innermost":
        self.calls.append("entered")
        return self


class Bold(StorePlugin):
    def append(self, text: str) -> Any:
        return self.next_store.append(f"<b>{text}</b>")


class Italic(StorePlugin):
    def append(self, text: str) -> Any:
        return self.next_store.append(f"<i>{text}</i>")


class Closing(StorePlugin):
    def close(self) -> None:
        self.next_store.calls.append("plugin closed")
        self.next_store.close()


def test_without_plugins_the_store_is_itself() -> None:
    store = Innermost()
    assert chain(store, []) is store


def test_the_first_named_is_outermost() -> None:
    store = chain(Innermost(), [Bold, Italic])
    assert store.append("x") == "stored <i><b>x</b></i>"
    assert isinstance(store, Bold)
    assert isinstance(store.next_store, Italic)


def test_everything_else_passes_through() -> None:
    store = chain(Innermost(), [Bold, StorePlugin, Italic])
    assert store.fetch("topic", 1, max_messages=3) == ("topic", 1, {"max_messages": 3})
    assert store.max_physical == 42
    assert "max_physical" in dir(store)


def test_what_the_store_lacks_is_missing() -> None:
    store = chain(Innermost(), [Bold])
    assert not hasattr(store, "no_such_call")
    assert not hasattr(store, "_secret")


def test_a_plugin_is_a_context_manager_and_closes_through_the_chain() -> None:
    innermost = Innermost()
    with chain(innermost, [Bold, Closing]) as store:
        assert isinstance(store, Bold)
    assert innermost.calls == ["entered", "plugin closed", "closed"]


def test_an_error_inside_leaves_the_block_after_closing() -> None:
    innermost = Innermost()
    with pytest.raises(KeyError), chain(innermost, [Bold]):
        raise KeyError("mine")
    assert innermost.calls == ["entered", "closed"]


def test_a_plugin_can_be_copied() -> None:
    assert copy.copy(Bold(Innermost())).append("x") == "stored <b>x</b>"


def test_a_function_may_be_a_factory() -> None:
    assert chain(Innermost(), [lambda store: Bold(Bold(store))]).append("x") == "stored <b><b>x</b></b>"


def test_a_factory_that_forgets_its_answer_is_named() -> None:
    def forgetful(store: Any) -> None:
        Bold(store)

    with pytest.raises(SettingsError) as caught:
        chain(Innermost(), [forgetful])
    assert "forgetful" in str(caught.value.value)


def test_factories_by_name() -> None:
    assert load_factories(["embermq.store.plugins:StorePlugin"]) == [StorePlugin]
    assert load_factories([]) == []


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("embermq.store.plugins", "package.module:Class"),
        (":StorePlugin", "package.module:Class"),
        ("embermq.store.plugins:", "package.module:Class"),
        ("no_such_package.plugins:Bold", "cannot be imported: No module named 'no_such_package'"),
        ("embermq.store.plugins:Missing", "embermq.store.plugins has no Missing"),
        ("embermq.store.plugins:_SETTING", "neither a class nor a function"),
    ],
)
def test_a_name_that_cannot_be_used_is_explained(name: str, reason: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_factories(["embermq.store.plugins:StorePlugin", name])
    assert reason in str(caught.value)
    assert caught.value.value == name
    assert caught.value.key == "messageStorePlugIn"


def test_a_mistake_in_the_plugins_own_module_keeps_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_plugin_for_test.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ZeroDivisionError) as caught:
        load_factories(["broken_plugin_for_test:Anything"])
    assert "broken_plugin_for_test" in caught.value.__notes__[0]
    assert "broken_plugin_for_test" not in sys.modules
