"""The settings of the place of backups, which commands write and the gc watches."""

from pydantic import Field, field_validator

from shale.service.config.secret_url import SecretUrl, url_text
from shale.service.config.section import Section
from shale.service.config.sections import StoreSection


class BackupSection(Section):
    """The place of the backups of ``shale backup``."""

    url: SecretUrl | None = Field(
        default=None, description="URL of the place of the backups, such as s3://backups/orders."
    )
    store: StoreSection | None = Field(
        default=None, description="Access to the store of the backups; by default as to that of the database."
    )

    @field_validator("url")
    @classmethod
    def _none_if_empty(cls, url: SecretUrl | None) -> SecretUrl | None:
        """Take an empty text, such as that of an unset variable in a compose file, for no place."""
        return url if url_text(url) else None
