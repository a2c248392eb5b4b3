"""Encryption of SSTs and WAL files at rest with AES-GCM, as a ``BlockTransformer``.

A section is stored as::

    format 1 u8 | length of the key's name u8 | name of the key | nonce 12 bytes | ciphertext | tag 16 bytes

What stands before the nonce is authenticated too.  Nonces are random, so a key should be replaced before it has written
2**32 sections (16 TiB in blocks of 4 KiB); what older keys wrote is read as long as they are in the file.

What is not encrypted: object names, manifests with the first and last key of each SST, segment prefixes, and sizes.
"""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shale.errors import InvalidRequestError
from shale.format.buffer import Buffer
from shale.format.transform import BlockTransformer, CannotDecode

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_FORMAT = 1
_NONCE_BYTES = 12
_TAG_BYTES = 16
_KEY_BYTES = (16, 24, 32)
_NAME = re.compile(r"[\x21-\x7e]{1,255}")


class AesGcm:
    """Encrypts with one key, and decrypts with all it was given.  Shows no key, and pickles as its key file only."""

    def __init__(
        self, keys: Mapping[str, bytes], *, write_with: str | None = None, nonces: Callable[[], bytes] | None = None
    ) -> None:
        """Check the keys.

        Args:
            keys: 16, 24 or 32 bytes by name; a name is stored with every section, in clear.
            write_with: the name of the key to encrypt with; by default the first one.
            nonces: makes 12 bytes that are never made again; by default the system's random source.  They are no part
                of ``Env``: a simulation that replays random numbers must not make keys unsafe.

        Raises:
            InvalidRequestError: no key, or a key or a name that is none; ``cryptography`` is not installed.
        """
        if not keys:
            raise InvalidRequestError("encryption: there is no key")
        for name, key in keys.items():
            if not _NAME.fullmatch(name):
                raise InvalidRequestError(
                    f"encryption: {name!r} is no name of a key: write 1 to 255 visible characters"
                )
            if len(key) not in _KEY_BYTES:
                raise InvalidRequestError(f"encryption: key {name} has {len(key)} bytes, not 16, 24 or 32")
        chosen = write_with if write_with is not None else next(iter(keys))
        if chosen not in keys:
            raise InvalidRequestError(f"encryption: there is no key {chosen}")
        cipher = _cipher()
        self._ciphers = {name.encode(): cipher(bytes(key)) for name, key in keys.items()}
        self._head = bytes((_FORMAT, len(chosen))) + chosen.encode()
        self._write_with = chosen.encode()
        self._nonces = nonces if nonces is not None else _random_nonce
        self._path: str | None = None

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> "AesGcm":
        """Read keys from a file with lines ``name hexadecimal-key``; the first one encrypts, all of them decrypt.

        Empty lines and lines that begin with ``#`` are left out.

        Raises:
            InvalidRequestError: the file cannot be read or understood; the error shows nothing of what is in it.
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidRequestError(
                f"encryption: {os.fspath(path)} cannot be read: {type(error).__name__}"
            ) from None  # an error of decoding holds the whole text
        keys: dict[str, bytes] = {}
        for number, line in enumerate(text.splitlines(), start=1):
            if not line.strip() or line.startswith("#"):
                continue
            name, key = _parse_line(line, f"encryption: {os.fspath(path)}, line {number}")
            if name in keys:
                raise InvalidRequestError(f"encryption: {os.fspath(path)} has two keys {name}")
            keys[name] = key
        made = cls(keys)
        made._path = os.fspath(path)
        return made

    @property
    def key_file(self) -> str | None:
        """Where the keys were read from; ``None`` if they were given."""
        return self._path

    def encode(self, data: Buffer) -> bytes:
        """See ``BlockTransformer``."""
        nonce = self._nonces()
        return self._head + nonce + self._ciphers[self._write_with].encrypt(nonce, bytes(data), self._head)

    def decode(self, data: Buffer) -> bytes:
        """See ``BlockTransformer``."""
        from cryptography.exceptions import InvalidTag

        stored = bytes(data)
        head_len = 2 + stored[1] if len(stored) > 1 else 2
        if len(stored) < head_len + _NONCE_BYTES + _TAG_BYTES or stored[0] != _FORMAT:
            raise CannotDecode("it is not encrypted, or not with AES-GCM")
        head, name = stored[:head_len], stored[2:head_len]
        cipher = self._ciphers.get(name)
        if cipher is None:
            raise CannotDecode(
                f"it is encrypted with key {name.decode(errors='replace')!r}, which is not among the keys"
            )
        nonce, sealed = stored[head_len : head_len + _NONCE_BYTES], stored[head_len + _NONCE_BYTES :]
        try:
            return cipher.decrypt(nonce, sealed, head)
        except InvalidTag:
            # The checksum was right, so the bytes are as they were written.
            raise CannotDecode(
                f"it cannot be decrypted: key {name.decode()!r} is not the one it was written with"
            ) from None

    def __repr__(self) -> str:
        return f"AesGcm({', '.join(name.decode() for name in self._ciphers)})"

    def __reduce__(self) -> tuple[Any, ...]:
        """As the name of its key file, which has to be there, too, where this is unpickled.

        Raises:
            TypeError: the keys were given as bytes, which must not travel.
        """
        if self._path is None:
            raise TypeError("keys are not pickled: read them with AesGcm.from_file")
        return AesGcm.from_file, (self._path,)


def key_file_of(transformer: BlockTransformer | None) -> str | None:
    """The name under which another process finds the same keys; ``None`` without a transformer.

    Raises:
        InvalidRequestError: the transformer is not one that can be found by name.
    """
    if transformer is None:
        return None
    if not isinstance(transformer, AesGcm) or transformer.key_file is None:
        raise InvalidRequestError("executors need the keys of the database: read them with AesGcm.from_file")
    return transformer.key_file


def transformer_of(key_file: str | None) -> AesGcm | None:
    """The keys of a file, read now; the reverse of ``key_file_of``."""
    return None if key_file is None else AesGcm.from_file(key_file)


def _parse_line(line: str, place: str) -> tuple[str, bytes]:
    match line.split():
        case [name, digits]:
            try:
                key = bytes.fromhex(digits)
            except ValueError:
                raise InvalidRequestError(f"{place}: the key is not hexadecimal") from None
            if len(key) not in _KEY_BYTES:
                # Without the name: in a line that has them the other way round it is the key.
                raise InvalidRequestError(f"{place}: the key has {len(key)} bytes, not 16, 24 or 32")
            return name, key
    raise InvalidRequestError(f"{place}: write a name and a key")


def _random_nonce() -> bytes:
    return os.urandom(_NONCE_BYTES)


def _cipher() -> "type[AESGCM]":
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise InvalidRequestError("encryption needs the package cryptography: pip install shale[encryption]") from error
    return AESGCM
