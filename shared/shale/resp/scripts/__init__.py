"""Scripts of lock libraries, recognized by their shape."""
