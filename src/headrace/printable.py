"""Text that cannot harm a terminal or forge a line of a log, whoever chose it.

Names come from other people. What could move the cursor, end a line, hide text or turn its direction (control
characters, line ends, bidirectional marks) is escaped as Python writes it.
"""


def printable(text: str, keep: str = "") -> str:
    """`text` with every character that a terminal would not simply show, but for those in `keep`, escaped."""
    if text.isprintable():
        return text
    return "".join(_shown(character, keep) for character in text)


def _shown(character: str, keep: str) -> str:
    if character.isprintable() or character in keep:
        return character
    return character.encode("unicode_escape").decode("ascii")


def shortened(text: str, chars_max: int) -> str:
    """No more than `chars_max` characters of a text, and how many it has if that is not all."""
    return text if len(text) <= chars_max else f"{text[:chars_max]}… ({len(text)} characters)"
