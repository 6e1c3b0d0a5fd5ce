"""How arms are called: by their batch alone where there is one setting, else by both."""

import dataclasses
from collections.abc import Iterable

from jax_rl.study.summary import Arm


@dataclasses.dataclass(frozen=True)
class Names:
    """Names for the arms of these settings, of which the first is the reference."""

    settings: tuple[str, ...]

    @property
    def several(self) -> bool:
        """Whether a batch alone does not name an arm."""
        return len(self.settings) > 1

    def show(self, arm: Arm) -> str:
        """`256`, or `fsdp 256`."""
        return f"{arm.setting} {arm.batch}" if self.several else str(arm.batch)

    def join(self, arms: Iterable[Arm]) -> str:
        """`16, 64 and 256`."""
        return join_words(self.show(arm) for arm in arms)


def name_settings(layouts: Iterable[tuple[str, str]]) -> str:
    """What settings are called: `layout` where they differ in nothing else, else `setting`.

    Args:
      layouts: the name of each setting and that of its layout.
    """
    return "layout" if all(name == layout for name, layout in layouts) else "setting"


def join_words(words: Iterable[str]) -> str:
    """`a, b and c`; nothing for no words."""
    *first, last = list(words) or [""]
    return f"{', '.join(first)} and {last}" if first else last
