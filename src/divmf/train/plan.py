"""What a job of a given size takes: memory of a process, bytes on the wire, and, from a short calibration, time.

The bytes are counted from the arrays that there are; docs/scaling.md sets them beside what was measured.
"""

import math
from dataclasses import dataclass, field

from divmf.engine.threads import PART_BYTES, PARTS, part_bounds, threads
from divmf.kernels.rows import rows_at_once
from divmf.market.columns import KINDS, WIDER, WIDTH
from divmf.models.config import TrainConfig
from divmf.models.steps import batch_shape, is_large, n_steps_of

# measured: Python with torch, numba's compiled kernels and polars; alone, torch is loaded when the data is read
LIBRARIES, BEFORE_TORCH, TORCH = 510 << 20, 90 << 20, 170 << 20
STREAM = 70 << 20  # what polars holds of the files it passes over
# of a row that was read: 16 bytes as numbers, twice while they are put in order or split, and what polars and the
# allocator have not given back by then; measured on 5 and 20 million rows
ROW_READ = 60
PAIR = 4 + 4 + 8  # user, item, time
MATRIX = 4 + 4  # a pair in a sparse matrix: train, and train with validation
STORED = 18  # a pair as the run folder has it, held beside the arrays made of it
ID = 16  # an entry of an id table
POINT_PASSES = 2  # passes over all scores that a point of the market takes, about
POINT_TURNS = 40  # turns of everybody that a point of the market takes, about
SAMPLED_LOSSES = ("bpr", "mse")


@dataclass(frozen=True)
class Job:
    """The size of a job. A job is planned as if processes had equal shares, and each pair a time."""

    users: int
    items: int
    interactions: int
    processes: int = 1
    config: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        for name in ("users", "items", "interactions", "processes"):
            if (value := getattr(self, name)) < 1:
                raise ValueError(f"{name}={value} is too few to plan with; give 1 or more")
        if self.processes > self.users:
            raise ValueError(f"{self.users} users cannot be shared by {self.processes} processes; plan with fewer")

    @property
    def own_users(self) -> int:
        """Users of a process."""
        return math.ceil(self.users / self.processes)

    @property
    def own_pairs(self) -> int:
        """Interactions of a process."""
        return math.ceil(self.interactions / self.processes)

    @property
    def item_table(self) -> int:
        """Bytes of all item vectors."""
        return 4 * self.config.n_dims * self.items

    @property
    def samples(self) -> bool:
        """Whether the accuracy phase draws negatives."""
        return self.config.model in SAMPLED_LOSSES

    @property
    def steps(self) -> int:
        """Steps of an accuracy epoch."""
        return n_steps_of(self.interactions, self.config) if self.samples else 1

    @property
    def curve_phase(self) -> str:
        """What makes the curve."""
        return "diversity" if self.config.method == "divmf" else self.config.method


Bytes = dict[str, int]


def memory(job: Job) -> dict[str, Bytes]:
    """Bytes of one process by phase, and in each phase by what they hold."""
    together = 0 if job.processes == 1 else TORCH
    return {
        "reading": {
            "libraries": BEFORE_TORCH + together,
            "files in passing": STREAM,
            "interactions": ROW_READ * job.own_pairs,
            "id tables": ID * (job.own_users + job.items),
        },
        "accuracy": kept_throughout(job, 16) | accuracy_only(job),
        job.curve_phase: kept_throughout(job, 24 if job.curve_phase == "diversity" else 16, seen=True)
        | curve_only(job),
        "recommend": {
            "libraries": LIBRARIES,
            "interactions": (PAIR + STORED) * job.own_pairs,
            "id tables": ID * (job.users + job.items),  # of all users, until each process has its own
            "vectors": 4 * job.config.n_dims * job.own_users + 2 * job.item_table,
            "lists": 16 * job.config.k * job.own_users,
            "scores": scores(job),
        },
    }


def kept_throughout(job: Job, vector_bytes: int, seen: bool = False) -> Bytes:
    """What is there all the time; vector_bytes: of a number of a vector, with its gradient and Adam's moments."""
    return {
        "libraries": LIBRARIES,
        "interactions": (PAIR + MATRIX * (1 + seen)) * job.own_pairs,
        "id tables": ID * (job.own_users + job.items),
        "vectors, gradients, Adam": vector_bytes * job.config.n_dims * (job.own_users + job.items),
    }


def accuracy_only(job: Job) -> Bytes:
    """What an accuracy epoch adds."""
    if job.samples:
        rows, config = job.own_users + job.items, job.config
        if config.adam == "dense" or (config.adam is None and not is_large(job.users + job.items, config)):
            return {"gradients": 4 * config.n_dims * rows}
        # values beside the moments, and the moments once more while they are written
        return {"last steps of rows": 8 * rows, "rows side by side": 8 * config.n_dims * rows}
    return {"sums of parts": sums_of_parts(job), "scores": scores(job)}


def curve_only(job: Job) -> Bytes:
    """What a diversity epoch, or a point of the market, adds."""
    config = job.config
    if job.curve_phase == "market":
        width = min(job.items, max(WIDTH, WIDER * config.k))
        columns = (4 + 4 + 1) * (2 * width + config.k) + 16  # item, value, lists it may stand in; where
        own = columns  # those of the model's own lists are kept
        lists = 2 * 4 * len(KINDS) * config.k  # and those of the point before
        candidates = columns + own + lists + 4 * width + 4 * config.n_dims
        return {"candidates": candidates * job.own_users, "exposure": 16 * 8 * job.items, "scores": scores(job)}
    kept = min(job.items, config.k + (config.unmask if config.unmask_policy != "none" else 0))
    return {
        "items kept in T": (4 * kept + 12) * job.own_users,
        "gradient on its way": 4 * config.n_dims * job.own_users,
        "sums of parts": sums_of_parts(job),
        "scores": scores(job),
    }


def sums_of_parts(job: Job) -> int:
    """Gradients of the items, one for each part of the users at work, and their sum."""
    n_parts = len(part_bounds(job.users, job.processes, job.item_table)) - 1
    return (math.ceil(n_parts / job.processes) + 3) * job.item_table


def scores(job: Job) -> int:
    """Rows of scores that all threads hold, and the item vectors turned."""
    return threads() * rows_at_once(job.own_users, job.items) * 4 * job.items + job.item_table


def peak(job: Job) -> int:
    """The most bytes a process holds while it trains, and while it recommends."""
    return max(sum(parts.values()) for parts in memory(job).values())


def wire(job: Job) -> Bytes:
    """Bytes that each process sends in an epoch, by phase; a sum over N processes sends 2 (N − 1)/N of its size."""
    others = job.processes - 1
    summed = 2 * others / job.processes
    exact = 2 if job.item_table * PARTS <= PART_BYTES else 1  # sums in double precision, where they are not too large
    gradient, counts = exact * job.item_table, 8 * job.items
    found = {"measuring": round(summed * 3 * counts)}
    if job.samples:
        rows, each = batch_shape(job.config)
        touched = min(job.items, rows * (1 + each))
        drawn = 4 * (1 + each) * rows  # which items they are
        found["accuracy"] = round(
            job.steps * (summed * 4 * job.config.n_dims * touched + others / job.processes * drawn)
        )
    else:
        found["accuracy"] = round(summed * gradient)
    turns = POINT_TURNS * counts if job.curve_phase == "market" else gradient + counts
    found[job.curve_phase] = round(summed * turns)
    return found


@dataclass(frozen=True)
class Pace:
    """How fast this machine is, by a process with as many threads as it would have: seconds for one of each.

    row        of the log, read
    step       a score of the softmax loss, or a sample of a loss that draws them, as the accuracy phase needs
    diversity  a score in a diversity epoch
    listed     a score in the making of lists
    """

    row: float
    step: float
    diversity: float
    listed: float


@dataclass(frozen=True)
class Network:
    """What lies between the processes."""

    gigabits: float = 10.0  # a second
    latency: float = 0.0005  # seconds until a sum over all is there


def seconds(job: Job, pace: Pace, network: Network) -> dict[str, float]:
    """Seconds of the reading, of an epoch of each phase, of its measuring, and of everybody's lists."""
    matrix = job.own_users * job.items
    sent = {name: 8 * count / (1e9 * network.gigabits) for name, count in wire(job).items()}
    waited = network.latency if job.processes > 1 else 0.0
    curve = matrix * pace.diversity if job.curve_phase == "diversity" else POINT_PASSES * matrix * pace.listed
    work = job.own_pairs * job.config.negatives if job.samples else matrix
    return {
        "reading": job.interactions * pace.row,
        "accuracy": work * pace.step + sent["accuracy"] + 2 * job.steps * waited,
        job.curve_phase: curve + sent[job.curve_phase] + 2 * waited,
        "measuring": matrix * pace.listed + sent["measuring"] + 4 * waited,
        "recommend": matrix * pace.listed,
    }
