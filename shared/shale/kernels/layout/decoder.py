"""Status codes and results of the block decoder's kernel."""

OK = 0
NEED_ROWS = 1
NEED_KEYS = 2
BAD_CHECKSUM = 3
BAD_COUNT = 4
BAD_ROW = 5
BAD_FLAGS = 6
MESSAGES = {
    BAD_CHECKSUM: "checksum mismatch",
    BAD_COUNT: "a block without rows, or with more offsets than bytes",
    BAD_ROW: "a row does not fit its block",
    BAD_FLAGS: "invalid row flags",
}

OUT_BLOCK = 0
OUT_OFFSET = 1
OUT_ROWS = 2
