"""Encryption of SSTs and WAL files at rest with AES-GCM, as a ``BlockTransformer``.

A section is stored as::

    format u8 (1) | key name length u8 | key name | nonce 12 bytes | ciphertext | tag 16 bytes

The bytes before the nonce are authenticated too.  Nonces are random, so replace a key before it has encrypted 2**32
sections (16 TiB in blocks of 4 KiB).  Keep old keys in the key file as long as sections written with them exist.

Not encrypted: object names, manifests with the first and last key of each SST, segment prefixes, and sizes.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shale.core.bytes_like import BytesLike
from shale.crypto.key_names import FORMAT, NAME
from shale.errors import InvalidRequestError, WrongType
from shale.format.blocks.transform import BlockTransformer, TransformError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_NONCE_BYTES = 12
_TAG_BYTES = 16
_KEY_BYTES = (16, 24, 32)


class AesGcm:
    """Encrypts with one key and decrypts with any of several.  Its ``repr`` and its pickle hold no key."""

    def __init__(
        self, keys: Mapping[str, bytes], *, write_with: str | None = None, nonces: Callable[[], bytes] | None = None
    ) -> None:
        """Check the keys.

        Args:
            keys: keys of 16, 24 or 32 bytes by name; each section stores the name of its key in clear text.
            write_with: name of the key to encrypt with; by default the first one.
            nonces: returns 12 bytes that never repeat; by default from the system's random source.  It is not part of
                ``Env``: a simulation that replays random numbers must not make keys unsafe.

        Raises:
            InvalidRequestError: there is no key, or a key or a name is invalid, or ``cryptography`` is not installed.
        """
        if not isinstance(keys, Mapping):
            raise WrongType(f"encryption: keys is of type {type(keys).__name__}: give names and keys, {{'k1': key}}")
        if not keys:
            raise InvalidRequestError("encryption: there is no key: give at least one")
        for name, key in keys.items():
            if not NAME.fullmatch(name):
                raise InvalidRequestError(
                    f"encryption: {name!r} is not a key name: write 1 to 255 visible ASCII characters"
                )
            if not isinstance(key, BytesLike):
                raise WrongType(f"encryption: key {name} is of type {type(key).__name__}: give 16, 24 or 32 bytes")
            if len(key) not in _KEY_BYTES:
                raise InvalidRequestError(f"encryption: key {name} has {len(key)} bytes, not 16, 24 or 32")
        chosen = write_with if write_with is not None else next(iter(keys))
        if chosen not in keys:
            raise InvalidRequestError(f"encryption: there is no key {chosen}")
        cipher = _cipher()
        self._ciphers = {name.encode(): cipher(bytes(key)) for name, key in keys.items()}
        self._head = bytes((FORMAT, len(chosen))) + chosen.encode()
        self._write_with = chosen.encode()
        self._nonces = nonces if nonces is not None else _random_nonce
        self._path: str | None = None

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> "AesGcm":
        """Read keys from a file with lines ``name hexadecimal-key``; the first key encrypts, all keys decrypt.

        Empty lines and lines that begin with ``#`` are skipped.

        Raises:
            InvalidRequestError: the file cannot be read or parsed; the error shows nothing of its content.
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidRequestError(
                f"encryption: {os.fspath(path)} cannot be read: {type(error).__name__}"
            ) from None  # a UnicodeDecodeError holds the whole text
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
        """Path that the keys were read from; ``None`` if they were passed as bytes."""
        return self._path

    @property
    def write_key(self) -> str:
        """Name of the key that encrypts."""
        return self._write_with.decode()

    @property
    def key_names(self) -> tuple[str, ...]:
        """Names of all keys."""
        return tuple(name.decode() for name in self._ciphers)

    def encode(self, data: BytesLike) -> bytes:
        """Encrypt one section; see ``BlockTransformer``."""
        nonce = self._nonces()
        return self._head + nonce + self._ciphers[self._write_with].encrypt(nonce, bytes(data), self._head)

    def decode(self, data: BytesLike) -> bytes:
        """Decrypt one section; see ``BlockTransformer``."""
        from cryptography.exceptions import InvalidTag

        stored = bytes(data)
        head_len = 2 + stored[1] if len(stored) > 1 else 2
        if len(stored) < head_len + _NONCE_BYTES + _TAG_BYTES or stored[0] != FORMAT:
            raise TransformError("it is not encrypted, or not with AES-GCM")
        head, name = stored[:head_len], stored[2:head_len]
        cipher = self._ciphers.get(name)
        if cipher is None:
            raise TransformError(
                f"it is encrypted with key {name.decode(errors='replace')!r}, which is not among the keys"
            )
        nonce, sealed = stored[head_len : head_len + _NONCE_BYTES], stored[head_len + _NONCE_BYTES :]
        try:
            return cipher.decrypt(nonce, sealed, head)
        except InvalidTag:
            # The section's checksum matched, so the bytes are intact and the key is wrong.
            raise TransformError(
                f"it cannot be decrypted: key {name.decode()!r} is not the one it was written with"
            ) from None

    def __repr__(self) -> str:
        return f"AesGcm({', '.join(name.decode() for name in self._ciphers)})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as the path of the key file, which must also exist where this is unpickled.

        Raises:
            TypeError: the keys were passed as bytes, which are not pickled.
        """
        if self._path is None:
            raise TypeError("keys are not pickled: read them with AesGcm.from_file")
        return AesGcm.from_file, (self._path,)


def key_file_of(transformer: BlockTransformer | None) -> str | None:
    """Return the key file from which another process can read the same keys; ``None`` without a transformer.

    Raises:
        InvalidRequestError: the transformer was not made from a key file.
    """
    if transformer is None:
        return None
    if not isinstance(transformer, AesGcm) or transformer.key_file is None:
        raise InvalidRequestError("executors need the keys of the database: read them with AesGcm.from_file")
    return transformer.key_file


def transformer_of(key_file: str | None) -> AesGcm | None:
    """Read the keys of a file; the reverse of ``key_file_of``."""
    return None if key_file is None else AesGcm.from_file(key_file)


def _parse_line(line: str, place: str) -> tuple[str, bytes]:
    match line.split():
        case [name, digits]:
            try:
                key = bytes.fromhex(digits)
            except ValueError:
                raise InvalidRequestError(f"{place}: the key is not hexadecimal") from None
            if len(key) not in _KEY_BYTES:
                # Do not show the name: if the line has name and key swapped, the name is the key.
                raise InvalidRequestError(f"{place}: the key has {len(key)} bytes, not 16, 24 or 32")
            return name, key
    raise InvalidRequestError(f"{place}: write a name and a key")


def _random_nonce() -> bytes:
    return os.urandom(_NONCE_BYTES)


def _cipher() -> "type[AESGCM]":
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise InvalidRequestError(
            "encryption needs the package cryptography: pip install 'shale[encryption]'"
        ) from error
    return AESGCM
