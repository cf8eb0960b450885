"""The store in Redis: streams for what happened, hashes for counts and documents, a script for each write.

Redis must append to its file (`appendonly yes`), or a restart would forget everything. With `appendfsync always` what
was acknowledged survives the loss of the machine, with `everysec` the end of the process.
"""

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qs, urlsplit

import redis

from divmf.engine.masking import masked
from divmf.serve.store import Document, Entry, Event, Limits, Outcome, Showing, Snapshot, StoreDown

REMEMBERED = 86_400  # seconds for which the name of a request is known
# a showing: refused as stale, with its full items or totals, or repeated, or counted
SHOW = """
local shown, capacity, stream, named, limits, totals = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local items = cjson.decode(ARGV[1])
if ARGV[2] ~= '' then
  local before = redis.call('GET', named)
  if before then return {tonumber(before), 1} end
end
local version = redis.call('HGET', limits, '')
if version and version ~= ARGV[5] then return {0, 2} end
local slots = tonumber(redis.call('HGET', totals, '') or '0') + #items
local counted, over = {}, {}
if version then
  counted = cjson.decode(ARGV[6])
  for _, pair in ipairs(counted) do
    local limit = redis.call('HGET', limits, pair[1])
    if limit then
      local cap, share, since = unpack(cjson.decode(limit))
      local after = tonumber(redis.call('HGET', totals, pair[1]) or '0') + pair[2]
      if (cap >= 0 and after > cap) or (share > 0 and after >= share * (slots - since) + 0.999999) then
        table.insert(over, pair[1])
      end
    end
  end
end
if #over > 0 then return {0, 3, unpack(over)} end
local full = {}
for _, item in ipairs(items) do
  local limit = redis.call('HGET', capacity, item)
  if limit and tonumber(redis.call('HGET', shown, item) or '0') >= tonumber(limit) then table.insert(full, item) end
end
if #full > 0 then return {0, 0, unpack(full)} end
for _, item in ipairs(items) do redis.call('HINCRBY', shown, item, 1) end
if version then redis.call('HINCRBY', totals, '', #items) end
for _, pair in ipairs(counted) do redis.call('HINCRBY', totals, pair[1], pair[2]) end
local number = redis.call('INCR', stream .. ':number')
redis.call('XADD', stream, number .. '-0', 'row', ARGV[3])
if ARGV[2] ~= '' then redis.call('SET', named, number, 'EX', tonumber(ARGV[4])) end
return {number, 0}
"""
MEET = """
local number = redis.call('INCR', KEYS[1] .. ':number')
redis.call('XADD', KEYS[1], number .. '-0', 'row', ARGV[1])
return {number, 0}
"""
DESCRIBE = """
local number = redis.call('INCR', KEYS[1] .. ':number')
if ARGV[3] == '-1' then redis.call('HDEL', KEYS[3], ARGV[4])
elseif ARGV[3] ~= '' then redis.call('HSET', KEYS[3], ARGV[4], ARGV[3]) end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('ZADD', KEYS[2], number, ARGV[1])
return {number, 0}
"""
LIMIT = """
local shown, limits, totals = KEYS[1], KEYS[2], KEYS[3]
local wanted, before = cjson.decode(ARGV[2]), redis.call('HGETALL', limits)
local slots, same = tonumber(redis.call('HGET', totals, '') or '0'), {}
for at = 1, #before, 2 do
  local name = before[at]
  if name ~= '' then
    local cap, share = unpack(cjson.decode(before[at + 1]))
    if wanted[name] and wanted[name][1] == cap and wanted[name][2] == share then same[name] = true
    else redis.call('HDEL', limits, name); redis.call('HDEL', totals, name) end
  end
end
redis.call('HSET', limits, '', ARGV[1])
for name, limit in pairs(wanted) do
  if not same[name] then
    local count = 0
    for _, item in ipairs(limit[3]) do count = count + tonumber(redis.call('HGET', shown, item) or '0') end
    redis.call('HSET', limits, name, cjson.encode({limit[1], limit[2], slots}))
    redis.call('HSET', totals, name, count)
  end
end
return {0, 0}
"""
KEEP = """
redis.call('HSET', KEYS[1], 'data', ARGV[1], 'showing', redis.call('GET', KEYS[2] .. ':number') or '0')
return {0, 0}
"""


class RedisStore:
    """The store in Redis; redis://host:6379/0?prefix=shop keeps several apart."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        options = parse_qs(parts.query)
        self._prefix = options.pop("prefix", ["divmf"])[0]
        if options:
            raise ValueError(f"store={masked(url)!r}: {min(options)} is not an option; only prefix is")
        self._database: Any = redis.Redis.from_url(
            parts._replace(query="").geturl(), socket_timeout=10, socket_connect_timeout=5, decode_responses=False
        )
        try:
            self._check()
            self._scripts: dict[str, Any] = {
                name: self._database.register_script(text) for name, text in SCRIPTS.items()
            }
        except redis.RedisError as error:
            raise ValueError(f"the store cannot be opened: {masked(url)}: {error}") from error

    def _check(self) -> None:
        """Refuse a Redis that forgets."""
        self._database.ping()
        try:
            kept = self._database.config_get("appendonly")
        except redis.ResponseError:  # a hosted Redis does not tell
            return
        if kept and next(iter(kept.values())) in (b"no", "no"):
            raise ValueError(
                "this Redis keeps nothing on disk at once (appendonly is no), so acknowledged showings could be lost;"
                " set appendonly yes"
            )

    def _key(self, name: str) -> str:
        return f"{self._prefix}:{name}"

    def write(self, entries: Sequence[Entry]) -> list[Outcome]:
        """Keep the entries, in one transaction."""
        try:
            batch = self._database.pipeline(transaction=True)
            for entry in entries:
                self._add(batch, entry)
            answers = batch.execute()
        except redis.RedisError as error:
            raise StoreDown(str(error)) from error
        return [outcome(answer) for answer in answers]

    def _add(self, batch: Any, entry: Entry) -> None:
        if isinstance(entry, Showing):
            row = json.dumps([entry.items, entry.person, entry.timestamp, entry.worker, entry.request])
            named = f"request:{entry.request}"
            keys = [self._key(name) for name in ("shown", "capacity", "showings", named, "limits", "totals")]
            values = [json.dumps(entry.items), entry.request or "", row, REMEMBERED, entry.rules,
                      json.dumps(entry.totals)]  # fmt: skip
            self._scripts["show"](keys, values, client=batch)
        elif isinstance(entry, Event):
            row = json.dumps([entry.person, entry.item, entry.kind, entry.timestamp, entry.worker])
            self._scripts["meet"]([self._key("events")], [row], client=batch)
        elif isinstance(entry, Document):
            capacity = "" if entry.capacity is None else str(entry.capacity)
            row = json.dumps([entry.kind, entry.name, entry.text, entry.capacity])
            keys = [self._key(name) for name in ("documents", "documents:order", "capacity")]
            values = [json.dumps([entry.kind, entry.name]), row, capacity, entry.name]
            self._scripts["describe"](keys, values, client=batch)
        elif isinstance(entry, Limits):
            wanted = {
                name: [-1 if cap is None else cap, share, [] if cap is None else members]
                for name, (cap, share, members) in entry.limits.items()
            }
            keys = [self._key(name) for name in ("shown", "limits", "totals")]
            self._scripts["limit"](keys, [entry.version, json.dumps(wanted)], client=batch)
        else:
            self._scripts["keep"]([self._key("snapshot"), self._key("showings")], [entry.data], client=batch)

    def _read(self, command: str, *arguments: Any, **options: Any) -> Any:
        try:
            return getattr(self._database, command)(*arguments, **options)
        except redis.RedisError as error:
            raise StoreDown(str(error)) from error

    def _stream(self, name: str, after: int, limit: int) -> list[tuple[int, list[Any]]]:
        found = self._read("xrange", self._key(name), min=f"({after}-0", count=limit)
        return [(int(number.split(b"-")[0]), json.loads(row[b"row"])) for number, row in found]

    def showings(self, after: int, limit: int = 10_000) -> list[tuple[int, Showing]]:
        """The showings after a number, in order."""
        rows = self._stream("showings", after, limit)
        return [(number, Showing(tuple(items), *others)) for number, (items, *others) in rows]

    def events(self, after: int, limit: int = 100_000) -> list[tuple[int, Event]]:
        """The events after a number, in order."""
        return [(number, Event(*row)) for number, row in self._stream("events", after, limit)]

    def last_event(self) -> int:
        """The number of the last event."""
        return int(self._read("get", self._key("events:number")) or 0)

    def documents(self, after: int) -> list[tuple[int, Document]]:
        """The documents written after a number, each as it is now, in order."""
        names = self._read("zrangebyscore", self._key("documents:order"), f"({after}", "+inf", withscores=True)
        if not names:
            return []
        rows = self._read("hmget", self._key("documents"), [name for name, _ in names])
        return [(int(number), Document(*json.loads(row))) for (_, number), row in zip(names, rows, strict=True)]

    def counts(self) -> dict[str, int]:
        """How often each item was shown."""
        found = self._read("hgetall", self._key("shown"))
        return {item.decode(): int(count) for item, count in found.items()}

    def totals(self) -> dict[str, tuple[int, int]]:
        """Of each total that is limited: how often it was shown, and how many slots there were since it is limited."""
        shown = {name.decode(): int(count) for name, count in self._read("hgetall", self._key("totals")).items()}
        limits = {name.decode(): row for name, row in self._read("hgetall", self._key("limits")).items() if name}
        slots = shown.get("", 0)
        return {name: (shown.get(name, 0), slots - int(json.loads(row)[2])) for name, row in limits.items()}

    def snapshot(self) -> Snapshot | None:
        """The last snapshot."""
        found = self._read("hgetall", self._key("snapshot"))
        return Snapshot(found[b"data"], int(found[b"showing"])) if found else None

    def forget(self, before: int) -> None:
        """Drop the showings before a number from the log."""
        self._read("xtrim", self._key("showings"), minid=f"{before}-0", approximate=False)

    def close(self) -> None:
        """Close the connections."""
        self._database.close()


SCRIPTS = {"show": SHOW, "meet": MEET, "describe": DESCRIBE, "limit": LIMIT, "keep": KEEP}
COUNTED, REPEATED, STALE, OVER = 0, 1, 2, 3


def outcome(answer: Any) -> Outcome:
    """What a script says became of an entry."""
    number, said, *names = answer
    named = tuple(name.decode() for name in names)
    full, over = ((), named) if said == OVER else (named, ())
    return Outcome(int(number), full, said == REPEATED, over, said == STALE)
