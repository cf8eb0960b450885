"""How a service is run: every setting, from flags or from the environment (DIVMF_SERVE_TOKEN, …)."""

from ipaddress import ip_address
from pathlib import Path
from typing import Self

from pydantic import Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

PREFIX = "DIVMF_SERVE_"


class ServeSettings(BaseSettings):
    """Settings of `divmf serve`; the flags are made from them, and each may stand in the environment."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid")

    run: Path = Field(description="a run folder with a picked point")
    host: str = Field(default="127.0.0.1", description="address to listen on; others than loopback need a token")
    port: int = Field(default=8000, ge=0, le=65535, description="port to listen on; 0: any free one")
    token: SecretStr | None = Field(
        default=None,
        description="what clients must send as `Authorization: Bearer …`; better in DIVMF_SERVE_TOKEN than in a flag",
    )
    store: str | None = Field(
        default=None,
        description="where showings are kept: sqlite:///FILE, postgresql://HOST/DATABASE, redis://HOST:PORT/0;"
        " sqlite beside the run folder, if not given",
    )
    catalog: Path | None = Field(default=None, description="titles and attributes of items: item_id, title, …")
    rules: Path | None = Field(default=None, description="rules that pages keep, such as rules.toml")
    group: str | None = Field(default=None, description="attribute whose values are watched too, such as seller")
    horizon: int | None = Field(
        default=None, ge=1, description="requests over which exposure is shared out; the number of users, if not given"
    )
    workers: int = Field(default=1, ge=1, le=64, description="processes that answer")
    rate: float = Field(default=1000, ge=0, description="requests a second that one client may send; 0: any number")
    origins: str = Field(default="", description="web origins that may call from a browser (CORS), comma separated")
    largest_body: int = Field(default=1 << 20, ge=1024, description="bytes of a request body at the most")
    sync_seconds: float = Field(default=0.25, gt=0, description="how often a worker looks at what the others did")
    snapshot_seconds: float = Field(default=30, gt=0, description="how often the ledger is kept whole")

    @property
    def named_origins(self) -> list[str]:
        """The origins that may call from a browser."""
        return [origin.strip() for origin in self.origins.split(",") if origin.strip()]

    @property
    def on_loopback(self) -> bool:
        """Whether only this machine can connect."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @model_validator(mode="after")
    def not_open_to_everybody(self) -> Self:
        """Whoever can connect can write, unless a token is asked for."""
        token = self.token.get_secret_value() if self.token is not None else None
        if token is not None and (len(token) < 8 or not token.isascii() or not token.isprintable() or " " in token):
            raise ValueError("token must be at least 8 printable ASCII characters without spaces")
        if token is None and not self.on_loopback:
            raise ValueError(
                f"host={self.host!r} lets other machines in, so a token is needed: set {PREFIX}TOKEN or --token"
            )
        return self
