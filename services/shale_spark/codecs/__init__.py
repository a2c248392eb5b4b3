"""Value codecs: conversion between stored values and columns."""

from shale_spark.codecs.codec import Decoded, InvalidValue, OnDecodeError, ValueCodec
from shale_spark.codecs.registry import value_codec

__all__ = ["Decoded", "InvalidValue", "OnDecodeError", "ValueCodec", "value_codec"]
