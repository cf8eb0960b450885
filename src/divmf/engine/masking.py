"""What is not shown: passwords in the address of a database, and what steers a terminal."""

import re

HIDDEN = "***"
# all that stands between the scheme and the last @ of a word, if there is a colon in it: a password may hold / and @
OF_USER = re.compile(r"(?<![\w+.-])([a-zA-Z][\w+.-]*:/+[^\s:/]*):\S*@")
OF_QUERY = re.compile(r"([?&;](?:\w*(?:password|passwd|pwd|secret|token|key))=)[^&;\s'\"]*", re.IGNORECASE)

CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """A text without what steers a terminal: a name of a file may hold anything."""
    return CONTROLS.sub(lambda found: repr(found[0])[1:-1], text)


def masked(text: str) -> str:
    """A text as it may be shown: postgresql://me:***@host/shop."""
    return OF_QUERY.sub(rf"\1{HIDDEN}", OF_USER.sub(rf"\1:{HIDDEN}@", text))
