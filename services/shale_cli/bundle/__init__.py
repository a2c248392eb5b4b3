"""What a bug report needs, in one file: without secrets, values and, unless they are asked for, keys."""
