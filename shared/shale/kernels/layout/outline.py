"""The outline of a request body, as the kernels of ``source.outline`` and their plain twin write it.

The result is a table of int64: ``HEAD`` words, then ``MARK_WORDS`` words per mark, in the order of the body.  A mark is
a range of bytes of the body: the name of a field, the value of a field, or a piece of the items of a field that is a
list.  Of a value with pieces there is no other mark.
"""

ELEMENTS, TEXT_BYTES, MARKS = 0, 1, 2
"""Words of the head: values in the body; bytes of text that may take four times as much memory; number of marks."""
HEAD = 3
KIND, START, END, ITEMS = 0, 1, 2, 3
"""Words of a mark.  ``ITEMS``: how many items a piece has."""
MARK_WORDS = 4
NAME, VALUE, PIECE = 0, 1, 2

COMPLETE, MALFORMED, NOT_AN_OBJECT, TOO_MANY, ITEM_TOO_LARGE, TOO_MANY_FIELDS = 0, 1, 2, 3, 4, 5
"""What a kernel returns.  The last three: more elements, elements of one item, or fields than allowed."""
