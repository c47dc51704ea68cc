"""Every setting, typed. From the environment (`AFTERTURN_*`) or a file of the same names; a wrong one stops the start."""

from __future__ import annotations

from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, FilePath, SecretStr, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

SECRET_BYTES = 32
"""The least that the secret of user tokens may have (RFC 7518, section 3.2)."""


class Settings(BaseSettings):
    """One model for all processes; each reads what concerns it. Times are in seconds, sizes in bytes or tokens as named."""

    model_config = SettingsConfigDict(
        env_prefix="AFTERTURN_",
        env_file=None,
        extra="forbid",
        frozen=True,
        env_ignore_empty=True,
        # an error names the setting, never its value: that may be a password
        hide_input_in_errors=True,
    )

    # stores and broker
    kafka: str = Field(default="127.0.0.1:9092", description="Bootstrap servers, host:port, comma separated.")
    kafka_security: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        default="PLAINTEXT", description="Security protocol of the brokers."
    )
    kafka_sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = Field(
        default="SCRAM-SHA-512", description="SASL mechanism, with SASL_* security."
    )
    kafka_username: str | None = Field(default=None, description="SASL user name.")
    kafka_password: SecretStr | None = Field(default=None, description="SASL password.")
    kafka_ca: FilePath | None = Field(
        default=None, description="File with the certificate authority of the brokers."
    )
    redis: str = Field(
        default="redis://127.0.0.1:6379/0",
        repr=False,
        description="Redis 7.2+ or Valkey; rediss:// for TLS, user and password in the URL.",
    )
    clickhouse: str = Field(
        default="http://127.0.0.1:8123/afterturn",
        repr=False,
        description="ClickHouse: http(s)://user:password@host:port/database, or chdb:DIRECTORY for the engine in process.",
    )

    # the window
    chunk_messages: int = Field(
        default=10, ge=1, le=200, description="A chunk closes at this many pending messages ..."
    )
    chunk_tokens: int = Field(
        default=2_000, ge=1, le=100_000, description="... or at this many tokens, on whole turns."
    )

    # the model that summarises
    summary_model: str = Field(
        default="extractive",
        description="`extractive` (no model, no key) or the name of a model of the endpoint below.",
    )
    summary_priority: Literal["idle", "normal"] = Field(
        default="idle",
        description="Processor time of a worker that runs `summarise` or `merge` with the extractive summariser. `idle`: what "
        "nothing else on the machine wants (on Linux its scheduling class of that name, elsewhere the lowest niceness). "
        "`afterturn up` is one process and leaves it alone.",
    )
    openai_base_url: str | None = Field(
        default=None,
        repr=False,
        validation_alias="OPENAI_BASE_URL",
        description="OpenAI-compatible endpoint. Read from OPENAI_BASE_URL.",
    )
    openai_api_key: SecretStr | None = Field(
        default=None, validation_alias="OPENAI_API_KEY", description="Its key. Read from OPENAI_API_KEY."
    )
    model_timeout: float = Field(
        default=60.0, gt=0, le=3600, description="Seconds for one call of the model."
    )
    prices: FilePath | None = Field(
        default=None, description="Price table (YAML); without it the one that ships is used."
    )

    # the runtime
    in_flight: int = Field(default=64, ge=1, le=4096, description="Model calls in flight in one worker.")
    batch: int = Field(
        default=200, ge=1, le=10_000, description="Records that a batching agent handles together."
    )
    buffer: int = Field(
        default=128, ge=2, le=4096, description="Records waiting per partition inside a worker."
    )
    retry_budget: float = Field(
        default=120.0, ge=0, description="Seconds of retries before a record is parked as a dead letter."
    )
    shutdown_deadline: float = Field(
        default=20.0, ge=0, description="Seconds for what is in flight after SIGTERM."
    )
    session_timeout: float = Field(
        default=6.0, ge=1, description="Seconds until the group takes a silent worker for dead."
    )
    dead_letter_run: int = Field(
        default=100, ge=1, description="Dead letters in a row on one partition that stop a worker."
    )
    dead_letter_rate: int = Field(
        default=600, ge=1, description="Dead letters in one minute that stop a worker."
    )
    ledger_rows: int = Field(
        default=10_000, ge=1, le=50_000, description="Rows in one insert into ClickHouse, at most."
    )
    ledger_delay: float = Field(
        default=1.0, gt=0, le=60, description="Seconds until a smaller batch is inserted."
    )

    # listening
    host: str = Field(default="127.0.0.1", description="Address of the health port and the gateway.")
    health_port: int = Field(
        default=0,
        ge=0,
        le=65535,
        description="Port for /healthz and /metrics of a worker; 0 takes a free one.",
    )
    gateway_port: int = Field(
        default=8080, ge=0, le=65535, description="Port of the gateway; 0 takes a free one."
    )
    service_tokens: tuple[SecretStr, ...] = Field(
        default=(), description="JSON list of bearer tokens of backends that may act for any user."
    )
    user_token_secret: SecretStr | None = Field(
        default=None,
        description="HS256 secret that signs user tokens (claim `sub` = user id); 32 bytes or more.",
    )

    # logs
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        default="INFO", description="What is logged, and above."
    )

    @field_validator("kafka")
    @classmethod
    def _servers(cls, value: str) -> str:
        for server in value.split(","):
            host, _, port = server.strip().rpartition(":")
            if not host or not port.isdigit() or not 0 < int(port) < 65536:
                raise ValueError("each bootstrap server is host:port")
        return value

    @field_validator("redis")
    @classmethod
    def _redis(cls, value: str) -> str:
        if not value.startswith("unix://"):
            _check_url(value, ("redis", "rediss"))
        return value

    @field_validator("clickhouse")
    @classmethod
    def _clickhouse(cls, value: str) -> str:
        if not value.startswith("chdb:"):
            _check_url(value, ("http", "https"))
        elif value == "chdb:":
            raise ValueError("chdb: needs a directory")
        return value

    @field_validator("openai_base_url")
    @classmethod
    def _endpoint(cls, value: str | None) -> str | None:
        if value is not None:
            _check_url(value, ("http", "https"))
        return value

    @field_validator("user_token_secret")
    @classmethod
    def _long_enough(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and len(value.get_secret_value().encode()) < SECRET_BYTES:
            raise ValueError(f"has less than {SECRET_BYTES} bytes")
        return value


def _check_url(value: str, schemes: tuple[str, ...]) -> None:
    """Raises ValueError, in words of our own: those of urllib may quote a part of the password."""
    try:
        parts = urlsplit(value)
        good = parts.scheme in schemes and bool(parts.hostname)
        _ = parts.port
    except ValueError:
        good = False
    if not good:
        wanted = " or ".join(f"{scheme}://" for scheme in schemes)
        raise ValueError(
            f"is not an address {wanted}[user:password@]host[:port]; in user and password write / as %2F, # as %23, "
            "@ as %40 and : as %3A"
        )
