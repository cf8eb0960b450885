"""Passwords in the address of a database: never on a screen, in a file or in an error."""

import re

HIDDEN = "***"
# all that stands between the scheme and the last @ of a word, if there is a colon in it: a password may hold / and @
OF_USER = re.compile(r"(?<![\w+.-])([a-zA-Z][\w+.-]*:/+[^\s:/]*):\S*@")
OF_QUERY = re.compile(r"([?&;](?:\w*(?:password|passwd|pwd|secret|token|key))=)[^&;\s'\"]*", re.IGNORECASE)


def masked(text: str) -> str:
    """A text as it may be shown: postgresql://me:***@host/shop."""
    return OF_QUERY.sub(rf"\1{HIDDEN}", OF_USER.sub(rf"\1:{HIDDEN}@", text))
