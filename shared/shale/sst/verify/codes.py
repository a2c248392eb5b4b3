"""Stable names of findings for programs, each with a sentence for people.

Source: docs/reference/protocol.md 3.7 and Appendix B; docs/reference/format.md.
"""

from enum import StrEnum


class Severity(StrEnum):
    """``ERROR``: rows are or soon will be lost, wrong or out of reach.  ``WARNING``: no row is affected so far."""

    ERROR = "error"
    WARNING = "warning"


class Code(StrEnum):
    """The kinds of findings; docs/how-to/verify.md lists them with their meanings."""

    CHECKSUM = "checksum"
    UNDECODABLE = "undecodable"
    ENCRYPTED = "encrypted"
    OBJECT_MISSING = "object-missing"
    OBJECT_SIZE = "object-size"
    FOOTER_MISMATCH = "footer-mismatch"
    LAYOUT_GAP = "layout-gap"
    ROW_ORDER = "row-order"
    ROW_OFFSETS = "row-offsets"
    SEPARATOR = "separator"
    FILTER_DENIES = "filter-denies"
    STATS = "stats"
    KEY_RANGE = "key-range"
    SEQ_ABOVE_MANIFEST = "seq-above-manifest"
    WAL_MISSING = "wal-missing"
    WAL_ENDS_EARLY = "wal-ends-early"
    WAL_ORDER = "wal-order"
    WAL_UNREPLAYED = "wal-unreplayed"
    BOUNDARY = "boundary"
    VERSION_GAP = "version-gap"
    VERSION_STEP = "version-step"
    L0_VANISHED = "l0-vanished"
    FOREIGN_NAME = "foreign-name"
    INVARIANT = "invariant"
    SEGMENT_ROWS = "segment-rows"
    RUN_OVERLAP = "run-overlap"
    L0_ORDER = "l0-order"
    L0_DUPLICATE = "l0-duplicate"
    WATERMARK = "watermark"
    SEQUENCE_TRACKER = "sequence-tracker"
    SST_DISAGREEMENT = "sst-disagreement"
    SST_COLLISION = "sst-collision"
    CHECKPOINT_DUPLICATE = "checkpoint-duplicate"
    CHECKPOINT_AHEAD = "checkpoint-ahead"
    CHECKPOINT_LOST = "checkpoint-lost"
    COMPACTION_ENTRY = "compaction-entry"
    COMPACTION_OUTPUT = "compaction-output"
    EPOCH_AHEAD = "epoch-ahead"
    PARENT_MISSING = "parent-missing"
    PIN_MISSING = "pin-missing"
    PIN_EXPIRES = "pin-expires"

    @property
    def severity(self) -> Severity:
        """The severity of the finding."""
        return Severity.WARNING if self in _WARNINGS else Severity.ERROR


_WARNINGS = frozenset(
    {
        Code.LAYOUT_GAP,
        Code.STATS,
        Code.WAL_ENDS_EARLY,
        Code.VERSION_GAP,
        Code.FOREIGN_NAME,
        Code.L0_ORDER,
        Code.L0_DUPLICATE,
        Code.SEQUENCE_TRACKER,
        Code.CHECKPOINT_DUPLICATE,
    }
)

MEANINGS: dict[Code, str] = {
    Code.CHECKSUM: "the bytes of a section are not those that were written",
    Code.UNDECODABLE: "the bytes break the format, although their checksum is right or they have none",
    Code.ENCRYPTED: "no section can be read, and all checksums are right: the key was not given, or is another one",
    Code.OBJECT_MISSING: "a manifest names an SST that does not exist",
    Code.OBJECT_SIZE: "an object is shorter than its contents require",
    Code.FOOTER_MISMATCH: "the footer of an SST and the manifest disagree",
    Code.LAYOUT_GAP: "an SST has bytes between its sections",
    Code.ROW_ORDER: "rows are not ordered by ascending key and descending sequence number: scans merge them wrongly",
    Code.ROW_OFFSETS: "the offset table of a block is wrong: point reads miss rows",
    Code.SEPARATOR: "the index points to the wrong block: point reads miss rows",
    Code.FILTER_DENIES: "a filter excludes a key that exists: point reads miss it",
    Code.STATS: "the counts or sizes in the stats of an SST are wrong",
    Code.KEY_RANGE: "the first or last key differs from the manifest",
    Code.SEQ_ABOVE_MANIFEST: "rows are newer than the manifest's last sequence number: no read returns them",
    Code.WAL_MISSING: "WAL files that replay needs are missing, or are in a WAL store that was not given",
    Code.WAL_ENDS_EARLY: "the WAL ends before the last file that the manifest refers to",
    Code.WAL_ORDER: "the sequence numbers of a WAL file do not follow those of the file before it: replay refuses it",
    Code.WAL_UNREPLAYED: "a WAL file has rows that are in no SST, and replay passes over them",
    Code.BOUNDARY: "a boundary is not a number, or it includes the newest version, which hides it",
    Code.VERSION_GAP: "a version above the boundary is missing",
    Code.VERSION_STEP: "a version lowers a value that may only rise",
    Code.L0_VANISHED: "L0s, or a segment with rows, are in no tree, and no compaction took them",
    Code.FOREIGN_NAME: "SlateDB takes a name for a version and cannot read it: its readers hang",
    Code.INVARIANT: "a manifest breaks a rule about runs, segments or WAL positions",
    Code.SEGMENT_ROWS: "keys are outside their segment",
    Code.RUN_OVERLAP: "SSTs of a run overlap or are not in order",
    Code.L0_ORDER: "an L0 precedes a newer one with the same keys",
    Code.L0_DUPLICATE: "an L0 is listed twice, as in unions made by SlateDB: its compactor loses rows, ours repairs it",
    Code.WATERMARK: "the watermark of compacted L0s is at an L0 that is still listed: it would be dropped",
    Code.SEQUENCE_TRACKER: "the times of sequence numbers cannot be read, or are of later ones than the last",
    Code.SST_DISAGREEMENT: "two manifests describe one SST differently",
    Code.SST_COLLISION: "one SST id refers to objects of two databases",
    Code.CHECKPOINT_DUPLICATE: "a checkpoint is listed twice",
    Code.CHECKPOINT_AHEAD: "a checkpoint refers to a version that was not written yet",
    Code.CHECKPOINT_LOST: "the version of a checkpoint is missing: a gc deletes nothing while the checkpoint exists",
    Code.COMPACTION_ENTRY: "a compaction runs without a worker, or its ranges do not cover all keys once",
    Code.COMPACTION_OUTPUT: "an output SST that a compaction recorded is missing",
    Code.EPOCH_AHEAD: "the compactions file has a higher epoch than the manifest",
    Code.PARENT_MISSING: "a clone uses SSTs of a database that does not exist",
    Code.PIN_MISSING: "the source database has no checkpoint that keeps the SSTs of a clone: its gc may delete them",
    Code.PIN_EXPIRES: "the checkpoint that keeps the SSTs of a clone expires",
}
