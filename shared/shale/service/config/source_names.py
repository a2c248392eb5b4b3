"""Names of the sources of settings: variables, directories and files."""

from pathlib import Path

PREFIX = "SHALE_"
SLATEDB_PREFIX = "SLATEDB_"
DEFAULT_FILE = Path("/etc/shale/config.toml")
SECRETS_DIR = Path("/run/secrets")
SHORT_NAMES = {
    "url": ("database", "url"),
    "store": ("database", "store"),
    "path": ("database", "path"),
    "wal_store": ("database", "wal_store"),
}
"""Short names such as ``SHALE_URL``; the command line has options of the same names."""
COMMAND_VARIABLES = frozenset(
    {
        "SHALE_ADMIN_TOKEN", "SHALE_ADMIN_TOKEN_FILE", "SHALE_CA_FILE", "SHALE_CLIENT_CERT_FILE",
        "SHALE_CLIENT_KEY_FILE", "SHALE_ENDPOINT", "SHALE_TOKEN_FILE",
    }
)  # fmt: skip
"""Variables of options of single commands, which are no settings."""
