"""The Hub token of a run: kept in memory, never written."""

from typing import Any

PLACEHOLDER = "<HUB_TOKEN>"


class HubToken(str):
    """A token that is None in every pickled copy and a placeholder where objects are printed.

    ``Trainer`` pickles its arguments into ``training_args.bin``, which is uploaded.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(PLACEHOLDER)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return type(None), ()

    def __copy__(self) -> "HubToken":
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "HubToken":
        return self


def hide_token(text: str, token: str | None) -> str:
    """Replace a token in a text."""
    return text.replace(token, PLACEHOLDER) if token else text
