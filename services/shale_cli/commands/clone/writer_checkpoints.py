"""Asks the writers of the sources for checkpoints, which include rows that are only in memory or in the WAL."""

import json
from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from shale.client.client import Client
from shale.client.tls import TlsFiles
from shale.clones.request import CloneSource
from shale.clones.sources import EPHEMERAL_LIFETIME_MS
from shale.env import Env
from shale.errors import AccessDenied, InvalidRequestError, NotFoundError
from shale.protocol.manifest_store import ManifestStore
from shale_cli.framework.admin_token import ADVICE
from shale_cli.framework.session import CliSession

_PATH = "/v1/admin/checkpoints"


async def with_writer_checkpoints(
    session: CliSession, sources: Sequence[CloneSource], urls: Sequence[str], token: str | None, tls: TlsFiles
) -> tuple[CloneSource, ...]:
    """Return the sources, each at a new checkpoint that its writer has made of all rows so far.

    If there is a manifest at the path of the clone, an earlier attempt has its checkpoints: nothing is asked for.

    Args:
        urls: the admin address of each writer, in the order of the sources; an empty one for a source without writer.
        token: the bearer token of the writers, if they require one.
        tls: the files of TLS.

    Raises:
        InvalidRequestError: the number of addresses differs, or a source with a writer has a checkpoint already.
        UnavailableError: a writer does not respond.
        AccessDenied: a writer requires another token.
    """
    if not urls:
        return tuple(sources)
    if len(urls) != len(sources):
        raise InvalidRequestError(
            f"--writer-url: {len(urls)} addresses for {len(sources)} sources; give one per source, '' for none"
        )
    for source, url in zip(sources, urls, strict=True):
        if url and source.checkpoint is not None:
            raise InvalidRequestError(f"--writer-url: {source.path} is to be taken at checkpoint {source.checkpoint}")
    async with session.open_store() as store:
        if await ManifestStore(store, session.path, session.env).list_versions():
            return tuple(sources)
    return tuple(
        [
            replace(source, checkpoint=await _checkpoint(url, token, tls, session.env)) if url else source
            for source, url in zip(sources, urls, strict=True)
        ]
    )


async def _checkpoint(url: str, token: str | None, tls: TlsFiles, env: Env) -> UUID:
    """Ask one writer; a repeated request finds the checkpoint of the first one by its id."""
    wanted = {"scope": "all", "lifetime": EPHEMERAL_LIFETIME_MS / 1000, "id": str(env.ids.uuid())}
    async with Client(url, token=token, env=env, **tls) as client:
        try:
            response = await client.send(
                "POST", _PATH, content=json.dumps(wanted).encode(), headers={"Content-Type": "application/json"}
            )
        except NotFoundError as error:
            raise InvalidRequestError(f"--writer-url: {url} is not the admin port of a writer: {error}") from error
        except AccessDenied as error:
            raise AccessDenied(f"{url}: {error}; {ADVICE}") from error
    return UUID(response.json()["id"])
