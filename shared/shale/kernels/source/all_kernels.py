"""Imports every module that declares kernels, which are then in ``jit.KERNELS``."""

from shale.kernels.source import bloom, flat, manifest, objects, outline, siphash, sort, strings
from shale.kernels.source.block import checksum, cursor, decode, encode, image
from shale.kernels.source.merge import blocks, columns, visible
from shale.kernels.source.point_lookup import lookup, many
from shale.kernels.source.scan import scan

SOURCES = (
    bloom,
    flat,
    manifest,
    objects,
    outline,
    siphash,
    sort,
    strings,
    checksum,
    cursor,
    decode,
    encode,
    image,
    blocks,
    columns,
    visible,
    lookup,
    many,
    scan,
)
