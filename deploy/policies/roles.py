"""What each role may do with which objects, and why: the one table of rights.

``python -m deploy.policies.generate`` makes the policies and the table of SECURITY.md from it, and a test runs each
role on a server that enforces its policy.
"""

from enum import StrEnum
from typing import NamedTuple


class Operation(StrEnum):
    """What may be done with an object.  No store tells a create from a replacement by a right: both are ``PUT``."""

    GET = "get"
    PUT = "put"
    DELETE = "delete"


class Place(StrEnum):
    """Where objects are: in the database, in the backups, or in a database that is made."""

    DATABASE = "database"
    BACKUPS = "backups"
    TARGET = "target"


GET, PUT, DELETE = Operation.GET, Operation.PUT, Operation.DELETE

MANIFEST = "manifest/"
COMPACTIONS = "compactions/"
RECORDS = "compaction_records/"
WAL = "wal/"
SSTS = "compacted/"
GC = "gc/"
PREFLIGHT = ".shale-preflight/"
DESTROYED = ".destroyed"
DELETING = ".deleting"
PREFIXES = (MANIFEST, WAL, SSTS, COMPACTIONS, RECORDS, GC, DESTROYED, DELETING, PREFLIGHT)
"""All objects of a database: folders end with a slash, the others are single objects."""
EVERYTHING = ""


class Right(NamedTuple):
    """Operations on objects below the path of a place; ``EVERYTHING`` are all of them."""

    operations: tuple[Operation, ...]
    prefixes: tuple[str, ...]
    why: str
    place: Place = Place.DATABASE


class Role(NamedTuple):
    """A process, or several that need the same rights; all of them may list the objects of their places."""

    name: str
    runs: str
    rights: tuple[Right, ...]

    def operations(self, prefix: str, place: Place = Place.DATABASE) -> tuple[Operation, ...]:
        """Return what the role may do below a prefix, in the order of ``Operation``."""
        allowed = {
            operation
            for right in self.rights
            if right.place is place and (prefix in right.prefixes or EVERYTHING in right.prefixes)
            for operation in right.operations
        }
        return tuple(each for each in Operation if each in allowed)

    def places(self) -> tuple[Place, ...]:
        """Return the places in which the role has rights."""
        return tuple(place for place in Place if any(right.place is place for right in self.rights))


INPUTS = Right((GET,), (SSTS,), "inputs of jobs")
STATE = Right((GET,), (MANIFEST, GC, DESTROYED, DELETING), "its state; is it destroyed")
CHECK = Right((GET, PUT, DELETE), (PREFLIGHT,), "the check at the start of a daemon")
CHECKPOINT = Right((PUT,), (MANIFEST,), "checkpoints, which protect what it reads")
ROWS = Right((GET,), (WAL, SSTS), "rows")
PLAN = Right((GET,), (COMPACTIONS, RECORDS), "jobs and their records")
JOBS = Right((PUT,), (COMPACTIONS, RECORDS), "claims, heartbeats, progress")

WRITER = Role(
    "writer",
    "`shale writer`, also with `--standby`; a load by Spark",
    (
        STATE,
        ROWS,
        Right((PUT,), (WAL,), "rows become durable; fences"),
        Right((PUT,), (SSTS,), "flushes write L0s"),
        Right((PUT,), (MANIFEST,), "claims its epoch, adds L0s, keeps checkpoints"),
        CHECK,
    ),
)
COMPACTOR = Role(
    "compactor",
    "`shale compactor --no-embedded-worker`; no row passes through it",
    (STATE, PLAN, JOBS, Right((PUT,), (MANIFEST,), "claims its epoch, commits what jobs have written"), CHECK),
)
OUTPUTS = Right((PUT,), (SSTS,), "outputs of jobs")
WORKER = Role("worker", "`shale worker`, also on Spark with its executors", (STATE, PLAN, JOBS, INPUTS, OUTPUTS, CHECK))
GARBAGE_COLLECTOR = Role(
    "gc",
    "`shale gc`; it reads no row",
    (
        STATE,
        Right((GET,), (COMPACTIONS,), "inputs and outputs of jobs stay"),
        Right((PUT,), (MANIFEST,), "removes expired checkpoints"),
        Right((PUT,), (GC,), "advances the boundaries, before it deletes what is below"),
        Right((PUT,), (DELETING,), "continues the deletion of a destroyed database"),
        Right((DELETE,), (EVERYTHING,), "garbage, and all objects of a destroyed database"),
        CHECK,
    ),
)
READER = Role("reader", "`shale reader`, `DbReader`", (STATE, ROWS, CHECKPOINT, CHECK))
FOLLOWER = Role("follower", "a reader with `follow_latest` or `checkpoint`, without a preflight", (STATE, ROWS))
LOOK = Right((GET,), (EVERYTHING,), "they may look at every object")
INSPECTOR = Role("inspector", "commands that write nothing: `verify`, `db info`, `kv scan`, `gc plan` …", (LOOK,))
OPERATOR = Role(
    "operator",
    "`shale compaction`, `shale checkpoint`",
    (STATE, PLAN, Right((PUT,), (MANIFEST,), "checkpoints"), Right((PUT,), (COMPACTIONS, RECORDS), "jobs")),
)
BACKUP = Role(
    "backup",
    "`shale backup create`, `list`, `verify`, `prune`",
    (
        STATE,
        Right((GET,), (WAL, SSTS, COMPACTIONS, RECORDS), "what is copied"),
        CHECKPOINT,
        Right((GET, PUT, DELETE), (EVERYTHING,), "copies, plans, the lock of a prune", Place.BACKUPS),
    ),
)
RESTORE = Role(
    "restore",
    "`shale backup restore`",
    (
        Right((GET,), (EVERYTHING,), "the copies", Place.BACKUPS),
        Right((GET,), (EVERYTHING,), "what an interrupted restore has written", Place.TARGET),
        Right((PUT,), (MANIFEST, COMPACTIONS, WAL, SSTS, GC), "the database", Place.TARGET),
        Right((DELETE,), (WAL, GC), "what another restore has left", Place.TARGET),
    ),
)
CLONER = Role(
    "cloner",
    "`shale clone create`",
    (
        STATE,
        ROWS,
        Right((PUT,), (MANIFEST,), "a checkpoint of the source, so that its SSTs stay"),
        Right((GET,), (EVERYTHING,), "what an interrupted attempt has written", Place.TARGET),
        Right((PUT,), (MANIFEST, WAL, SSTS, GC), "the clone", Place.TARGET),
        Right((DELETE,), (GC,), "the range of an interrupted attempt", Place.TARGET),
    ),
)
SHARED = Right((GET,), (SSTS,), "SSTs that the clone shares")
SOURCE = Role("source", "processes of a clone that read rows, in addition, at each source", (SHARED,))
SOURCE_GC = Role(
    "source-gc",
    "gc and destroyer of a clone, in addition, at each source",
    (STATE, Right((PUT,), (MANIFEST,), "removes the checkpoint for the clone")),
)
DESTROYER = Role(
    "destroyer",
    "`shale db destroy`",
    (
        Right((GET,), (EVERYTHING,), "what belongs to the database"),
        Right((PUT,), (MANIFEST, WAL, DESTROYED, DELETING), "fences, detaches, marks"),
        Right((DELETE,), (EVERYTHING,), "all objects"),
    ),
)

ROLES = (
    *(WRITER, COMPACTOR, WORKER, GARBAGE_COLLECTOR, READER, FOLLOWER),
    *(INSPECTOR, OPERATOR, BACKUP, RESTORE, CLONER, SOURCE, SOURCE_GC, DESTROYER),
)
