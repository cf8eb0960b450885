"""Files with something changed: bytes, words, numbers, values of a document; all drawn from one generator."""

import json
import random
import re
from typing import Any

WORDS = [
    b"", b"0", b"-0", b"+1", b"-1", b"007", b"1e308", b"-1e309", b"nan", b"NaN", b"inf", b"-Infinity", b"null", b"true",
    b"9223372036854775808", b"-9223372036854775809", b"18446744073709551616", b"1.5", b"0x10", b"1_000", b"\x00",
    b"\xff\xfe", b"\xef\xbb\xbf", b"\xf0\x9f\x8d\xb5", b'"', b"'", b"\\", b",", b"\t", b"::", b"\n", b"\r\n", b"\r",
    b"{", b"[", b"]", b"}", b"<html>", b"user_id", b"item_id", b"score", b"timestamp", b"split", b"../../x",
    b"2020-13-45",
    b"9999-12-31T23:59:59Z", b"1600000000000", b"[" * 50, b"x" * 300, b"=1+1", b"\x1b[31m", b"%s%n",
    b"PAR1", b"PK\x03\x04",
]  # fmt: skip
VALUES: list[Any] = [
    None, True, False, 0, -1, 1, 10**30, -(10**30), 1.5, 1e308, float("nan"), float("inf"), "", "x", "60", "inf", "nan",
    [], {}, [1], {"a": 1}, [[]], "\x00", "ρ", "</script>", 2**31, 2**63,
]  # fmt: skip


def mutated(data: bytes, rng: random.Random) -> bytes:
    """One to six changes; a document may be changed by its values."""
    if data[:1] in (b"{", b"[") and rng.random() < 0.6:
        try:
            return of_document(data, rng)
        except ValueError:
            pass
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        data = CHANGES[rng.randrange(len(CHANGES))](data, rng)
    return data


def of_document(data: bytes, rng: random.Random) -> bytes:
    """JSON, or one of its lines, with a value changed, taken out or put in."""
    lines = data.decode().splitlines() if not data.rstrip().endswith(b"\n}") else [data.decode()]
    number = rng.randrange(len(lines))
    whole = [json.loads(lines[number])]
    part: Any = whole
    key: Any = 0
    while isinstance(part[key], dict | list) and part[key] and rng.random() < 0.7:
        part = part[key]
        key = rng.choice(list(part)) if isinstance(part, dict) else rng.randrange(len(part))
    what = rng.random()
    if what < 0.2 and part is not whole:
        del part[key]
    elif what < 0.3 and isinstance(part, dict):
        part[rng.choice(["", "x", "epoch", "settings", "knob", "users"])] = rng.choice(VALUES)
    else:
        part[key] = rng.choice(VALUES)
    lines[number] = json.dumps(whole[0]) if whole else ""
    return "\n".join(lines).encode() + b"\n"


def flip(data: bytes, rng: random.Random) -> bytes:
    """A bit."""
    if not data:
        return b"\x00"
    place = rng.randrange(len(data))
    return data[:place] + bytes([data[place] ^ (1 << rng.randrange(8))]) + data[place + 1 :]


def put(data: bytes, rng: random.Random) -> bytes:
    """A word somewhere, in the place of as many bytes or between them."""
    word, place = rng.choice(WORDS), rng.randrange(len(data) + 1)
    return data[:place] + word + data[place + (len(word) if rng.random() < 0.5 else 0) :]


def cut(data: bytes, rng: random.Random) -> bytes:
    """The beginning alone."""
    return data[: rng.randrange(len(data) + 1)]


def drop(data: bytes, rng: random.Random) -> bytes:
    """Some bytes less."""
    place = rng.randrange(len(data) + 1)
    return data[:place] + data[place + rng.randint(1, 30) :]


def double(data: bytes, rng: random.Random) -> bytes:
    """Some bytes twice."""
    place = rng.randrange(len(data) + 1)
    return data[:place] + data[place : place + rng.randint(1, 60)] + data[place:]


def swap_number(data: bytes, rng: random.Random) -> bytes:
    """A number, or a word, in the place of another."""
    found = list(re.finditer(rb"-?\d+(\.\d+)?", data[:4000]))
    if not found:
        return put(data, rng)
    one = rng.choice(found)
    return data[: one.start()] + rng.choice(WORDS) + data[one.end() :]


def swap_lines(data: bytes, rng: random.Random) -> bytes:
    """Lines in another order, one of them gone or there twice."""
    lines = data.split(b"\n")
    rng.shuffle(lines)
    return b"\n".join(lines + lines[: rng.randrange(2)])


CHANGES = (flip, flip, put, put, cut, drop, double, swap_number, swap_number, swap_lines)
