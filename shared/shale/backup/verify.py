"""Checks the copies of a backup against its document."""

from shale.backup.backup_store import BackupStore
from shale.backup.copying import CONCURRENCY, ObjectReader, OnProgress, Progress, digest_of, for_each
from shale.backup.document import Backup, BackupObject
from shale.core.lazy_dataclass import dataclass
from shale.env import Env
from shale.errors import CorruptionError


@dataclass(frozen=True, slots=True)
class BackupFinding:
    """An object that is missing or damaged.  ``key``: its key in the backup store."""

    key: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupReport:
    """The result of a check.

    Args:
        backup: what was checked.
        depth: ``quick``, ``checksums`` or ``deep``.
        read_bytes: bytes that were read for checksums.
        rows: rows that were decoded; ``None`` unless the check was deep.
        findings: by key; those of a deep check have keys of the restored database.
    """

    backup: Backup
    depth: str
    read_bytes: int
    findings: tuple[BackupFinding, ...]
    rows: int | None = None

    @property
    def is_sound(self) -> bool:
        """Whether there is no finding."""
        return not self.findings


async def verify_backup(
    store: BackupStore,
    backup: Backup,
    env: Env,
    *,
    quick: bool,
    concurrency: int = CONCURRENCY,
    on_progress: OnProgress | None = None,
) -> BackupReport:
    """Check that all copies are there with their sizes and, unless ``quick``, their checksums.  Nothing is written."""
    present = await store.present()
    found: list[BackupFinding] = []
    intact: list[BackupObject] = []
    for each in backup.objects:
        size = present.get(each.key)
        if size == each.size:
            intact.append(each)
        else:
            message = "it is missing" if size is None else f"it has {size} bytes, not {each.size}"
            found.append(BackupFinding(store.key(each.key), message))
    read_bytes = 0
    if not quick:
        progress = Progress("verify", len(intact), sum(each.size for each in intact), on_progress)

        async def check(each: BackupObject) -> None:
            nonlocal read_bytes
            key = store.key(each.key)
            try:
                digest = await digest_of(ObjectReader(store.store, key, each.size, env, progress.read))
            except CorruptionError as error:
                found.append(BackupFinding(key, error.message))
                return
            read_bytes += each.size
            if digest.sha256 != each.sha256:
                found.append(BackupFinding(key, f"its SHA-256 is {digest.sha256}, not {each.sha256}"))
            progress.ended()

        await for_each(intact, check, concurrency)
    return BackupReport(
        backup=backup,
        depth="quick" if quick else "checksums",
        read_bytes=read_bytes,
        findings=tuple(sorted(found, key=lambda finding: finding.key)),
    )
