"""What values hold: how bytes become columns, and columns bytes."""

from shale_spark.codecs.codec import Decoded, OnBad, ValueCodec, ValueRefused
from shale_spark.codecs.named import value_codec

__all__ = ["Decoded", "OnBad", "ValueCodec", "ValueRefused", "value_codec"]
