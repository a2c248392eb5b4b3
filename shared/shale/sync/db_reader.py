"""``shale.sync.DbReader``: the read-only handle, whose calls block."""

from typing import Any, Self
from uuid import UUID

from shale.engine import db_reader
from shale.engine.opening import Opening
from shale.engine.reader_options import ReaderOptions
from shale.env import Env
from shale.errors import ShaleError
from shale.store.options import StoreOptions
from shale.store.port import ObjectStore
from shale.sync.background import Background, background
from shale.sync.db_cache import DbCache
from shale.sync.reads import BlockingReads
from shale.telemetry.metrics import Metrics
from shale.types import Manifest


class DbReader(BlockingReads[db_reader.DbReader]):
    """Reads one database; see ``shale.DbReader``.  Made by ``open``, and open until ``close``.

    It pickles as the asynchronous one does, and is opened where it is unpickled.
    """

    @classmethod
    def open(
        cls,
        where: str | None = None,
        *,
        store: str | ObjectStore | None = None,
        path: str | None = None,
        wal_store: str | ObjectStore | None = None,
        env: Env | None = None,
        metrics: Metrics | None = None,
        store_options: StoreOptions | None = None,
        options: ReaderOptions | None = None,
        **settings: Any,
    ) -> Self:
        """Open a database for reading; close it, or use it with ``with``.

        Arguments and errors are those of ``shale.DbReader.open``.
        """
        opening = db_reader.DbReader.open(
            where,
            store=store,
            path=path,
            wal_store=wal_store,
            env=env,
            metrics=metrics,
            store_options=store_options,
            options=options,
            **settings,
        )
        return cls._opened(opening)

    @classmethod
    def _opened(cls, opening: Opening[db_reader.DbReader]) -> Self:
        loop = background()
        return cls(loop.call(opening.opened(), undo=db_reader.DbReader.close), loop)

    def __init__(self, inner: db_reader.DbReader, loop: Background) -> None:
        super().__init__(inner, loop)
        loop.keep(inner, inner.close)

    @property
    def manifest(self) -> Manifest:
        """The manifest that is served."""
        return self._inner.manifest

    @property
    def manifest_id(self) -> int:
        """Its version."""
        return self._inner.manifest_id

    @property
    def checkpoint_id(self) -> UUID | None:
        """What protects the state that is served; ``None`` for a reader that follows without protection."""
        return self._inner.checkpoint_id

    @property
    def visible_seq(self) -> int:
        """The newest sequence number that reads can see."""
        return self._inner.visible_seq

    @property
    def cache(self) -> DbCache:
        """What is kept in memory and on disk of its SSTs, to be filled and emptied by hand."""
        return DbCache(self._inner.cache, self._background)

    @property
    def problem(self) -> ShaleError | None:
        """Why this reader serves no more; ``None`` while it does."""
        return self._inner.problem

    @property
    def last_poll_ms(self) -> int:
        """When it last knew the newest state, in milliseconds since 1970."""
        return self._inner.last_poll_ms

    def refresh(self) -> None:
        """Look for newer data now instead of at the next poll."""
        self._background.call(self._inner.refresh())

    def close(self) -> None:
        """Stop following and remove the checkpoint.  A second call does nothing."""
        if not self._background.is_over:
            self._background.forget(self._inner)
            self._background.call(self._inner.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        _, opening = self._inner.__reduce__()
        return type(self)._opened, (Opening(*opening),)
