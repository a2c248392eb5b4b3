"""What can be wrong, as stable names: programs decide by them, people read the sentence beside them.

Source: docs/protocol.md 3.7 and Appendix B; docs/format.md.
"""

from enum import StrEnum


class Severity(StrEnum):
    """``ERROR``: rows are lost, wrong or out of reach, or soon will be.  ``WARNING``: no row hangs on it, so far."""

    ERROR = "error"
    WARNING = "warning"


class Code(StrEnum):
    """The kinds of findings; docs/verify.md lists them with their meanings."""

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
    BOUNDARY = "boundary"
    VERSION_GAP = "version-gap"
    VERSION_STEP = "version-step"
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
        """How bad it is."""
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
    Code.OBJECT_MISSING: "an SST is gone that a manifest still names",
    Code.OBJECT_SIZE: "an object is shorter than what it has to hold",
    Code.FOOTER_MISMATCH: "an SST says something else of itself than the manifest does",
    Code.LAYOUT_GAP: "bytes of an SST belong to none of its parts",
    Code.ROW_ORDER: "rows do not ascend by key and descend by sequence number: scans merge them wrongly",
    Code.ROW_OFFSETS: "a block's table of offsets leads elsewhere: point reads miss rows",
    Code.SEPARATOR: "the index leads to the wrong block: point reads miss rows",
    Code.FILTER_DENIES: "a filter denies a key that is there: point reads miss it",
    Code.STATS: "counts and sizes that an SST keeps of itself are wrong",
    Code.KEY_RANGE: "the first or last key is not the one that the manifest says",
    Code.SEQ_ABOVE_MANIFEST: "rows are newer than the manifest's last sequence number: nobody sees them",
    Code.WAL_MISSING: "WAL files that replay needs are gone, or in a store that was not named",
    Code.WAL_ENDS_EARLY: "the log ends before the last file that the manifest knows of",
    Code.WAL_ORDER: "a WAL file does not begin above the one before: replay refuses it",
    Code.BOUNDARY: "a boundary is no number, or stands at the newest version, which then nobody can find",
    Code.VERSION_GAP: "a version above the boundary is gone",
    Code.VERSION_STEP: "a version takes back what an earlier one said",
    Code.FOREIGN_NAME: "a name that SlateDB takes for a version and cannot read: its readers hang",
    Code.INVARIANT: "a manifest breaks a rule about runs, segments or WAL positions",
    Code.SEGMENT_ROWS: "keys lie outside of their segment",
    Code.RUN_OVERLAP: "SSTs of a run overlap or are not in order",
    Code.L0_ORDER: "an L0 stands in front of a newer one that shows the same keys",
    Code.L0_DUPLICATE: "an L0 is listed twice, as in unions made by SlateDB: its compactor loses rows, ours repairs it",
    Code.WATERMARK: "the mark up to which L0s are compacted stands on one that is still listed: it would be dropped",
    Code.SEQUENCE_TRACKER: "the times of sequence numbers cannot be read",
    Code.SST_DISAGREEMENT: "two manifests say different things of one SST",
    Code.SST_COLLISION: "one id of an SST stands for objects of two databases",
    Code.CHECKPOINT_DUPLICATE: "a checkpoint is listed twice",
    Code.CHECKPOINT_AHEAD: "a checkpoint names a version that was not written yet",
    Code.CHECKPOINT_LOST: "the version that a checkpoint keeps is gone: collectors delete nothing until it is released",
    Code.COMPACTION_ENTRY: "a compaction runs without a worker, or its ranges do not cover all keys once",
    Code.COMPACTION_OUTPUT: "a compaction relies on an output that is gone",
    Code.EPOCH_AHEAD: "the compactions file was claimed with an epoch that the manifest never gave",
    Code.PARENT_MISSING: "a clone borrows SSTs of a database that is gone",
    Code.PIN_MISSING: "the database that a clone borrows from does not keep that for it: its collector may delete it",
    Code.PIN_EXPIRES: "what keeps borrowed SSTs ends by itself",
}
