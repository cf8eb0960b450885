"""The store that a URL names."""

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from divmf.engine.masking import masked
from divmf.serve.store import Store


def open_store(url: str) -> Store:
    """The store that a URL names: sqlite:///live.sqlite, postgresql://host/database, redis://host:6379/0."""
    scheme = urlsplit(url).scheme
    if scheme == "sqlite":
        from divmf.serve.sql import sqlite_store

        return sqlite_store(url)
    if scheme in ("postgresql", "postgres"):
        with needing("psycopg", "postgresql"):
            from divmf.serve.sql import postgresql_store

            return postgresql_store(url)
    if scheme in ("redis", "rediss", "unix"):
        with needing("redis", "redis"):
            from divmf.serve.redis_store import RedisStore

            return RedisStore(url)
    raise ValueError(
        f"store={masked(url)!r} is not understood; write sqlite:///live.sqlite, postgresql://host/database or"
        " redis://host:6379/0"
    )


@contextmanager
def needing(module: str, extra: str) -> Iterator[None]:
    """Turn the absence of an optional library into an error that says how to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != module:
            raise
        raise ImportError(f"this needs {module}: pip install 'divmf[{extra}]'") from error
