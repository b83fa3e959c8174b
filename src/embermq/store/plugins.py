"""Store plugins: wrappers around a store that see every call before it does.

A plugin holds the next store of the chain and answers everything it does not define itself with that
store's own attribute, so a plugin is only as long as what it changes:

    class Upper(StorePlugin):
        def append(self, message: Message) -> Receipt:
            return self.next_store.append(replace(message, body=message.body.upper()))

    MessageStore.open(path, plugins=[Upper])    # or the setting messageStorePlugIn = package.module:Upper

The first named is the outermost. Calls the store makes to itself do not pass through the chain.
A plugin may be called by any thread that may call the store.
"""

import importlib
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Self

from embermq.errors import SettingsError

PluginFactory = Callable[[Any], Any]

_SETTING = "messageStorePlugIn"


class StorePlugin:
    """Passes every public call to the next store; derive from it and override what you need."""

    def __init__(self, next_store: Any) -> None:
        self.next_store = next_store

    def __getattr__(self, name: str) -> Any:
        # Reached only for what neither the plugin nor its class defines. Private names are not passed on,
        # nor is next_store, which is missing only while an instance is being copied or unpickled.
        if name.startswith("_") or name == "next_store":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.next_store, name)

    def __dir__(self) -> list[str]:
        passed_on = {name for name in dir(self.next_store) if not name.startswith("_")}
        return sorted(passed_on.union(super().__dir__()))

    # The language looks these two up on the class, past __getattr__.

    def __enter__(self) -> Self:
        self.next_store.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # Through close(), so that a plugin that overrides it is closed as well.
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.next_store!r})"


def chain(store: Any, factories: Sequence[PluginFactory]) -> Any:
    """`store` inside its plugins; built from the last to the first, so that the first is outermost."""
    for factory in reversed(factories):
        if not callable(factory):
            raise SettingsError("is neither a class nor a function that wraps a store", key=_SETTING, value=factory)
        wrapped = factory(store)
        if wrapped is None:
            raise SettingsError("returned None instead of a store", key=_SETTING, value=_name(factory))
        store = wrapped
    return store


def load_factories(names: Iterable[str]) -> list[PluginFactory]:
    """The factories that `package.module:Name` stand for; SettingsError says which one is not there."""
    return [_load(name) for name in names]


def _load(name: str) -> PluginFactory:
    module_name, colon, attribute = name.partition(":")
    if not colon or not module_name or not attribute:
        raise SettingsError("a plugin is named package.module:Class", key=_SETTING, value=name)
    try:
        found: Any = importlib.import_module(module_name)
    except ImportError as problem:
        raise SettingsError(f"cannot be imported: {problem}", key=_SETTING, value=name) from problem
    except Exception as problem:
        problem.add_note(f"while importing {module_name} for the setting {_SETTING} = {name}")
        raise  # A mistake inside the plugin's own module: its author needs the place.
    for part in attribute.split("."):
        found = getattr(found, part, None)
        if found is None:
            raise SettingsError(f"{module_name} has no {attribute}", key=_SETTING, value=name)
    if not callable(found):
        raise SettingsError("is neither a class nor a function that wraps a store", key=_SETTING, value=name)
    return found  # type: ignore[no-any-return]  # callable() is all that can be known of it


def _name(factory: PluginFactory) -> str:
    return f"{getattr(factory, '__module__', '?')}:{getattr(factory, '__qualname__', repr(factory))}"
