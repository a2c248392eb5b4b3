"""What all tasks of a writer share."""

from dataclasses import dataclass

from shale.engine.accept import Acceptor
from shale.engine.active_seqs import ActiveSeqs
from shale.engine.options import DbOptions
from shale.engine.progress import Progress
from shale.engine.writer_instruments import WriterInstruments
from shale.engine.writer_manifest import WriterManifest
from shale.env import Env


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterParts:
    """Rows in memory, who reads, the manifest, how far both have come, and the outside world."""

    acceptor: Acceptor
    active: ActiveSeqs
    manifest: WriterManifest
    progress: Progress
    options: DbOptions
    env: Env
    instruments: WriterInstruments
