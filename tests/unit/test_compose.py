"""docker-compose.yml, the container file, Kubernetes and the dashboards, as far as they can be checked without Docker."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
import typer
import yaml
from pydantic import SecretStr, ValidationError
from typer.core import TyperGroup

from infra import topics
from services import metrics
from services.gateway import metrics as gateway_metrics
from services.settings import Settings
from streams.cli.main import app
from tests import compose

USAGE_ERROR = typer.BadParameter.__mro__[1]
"""UsageError of the click that typer carries with it, which it does not export."""

PROJECT = tomllib.loads((compose.ROOT / "pyproject.toml").read_text())["project"]
OUR_IMAGE = f"afterturn:{PROJECT['version']}"
SECRETS = {
    "CLICKHOUSE_PASSWORD": "abc123",
    "SERVICE_TOKENS": '["token"]',
    "GRAFANA_PASSWORD": "x",
    "USER_TOKEN_SECRET": "",
}
OURS = [name for name, service in compose.load().services.items() if service.image == OUR_IMAGE]
AGENTS = {spec.name.split(".")[-2] for spec in topics.wanted() if spec.name.endswith(".dlq")}


def parse(arguments: list[str]) -> str:
    """Let the command line parse a command without running it; gives its full name, raises UsageError."""
    command = typer.main.get_command(app)
    name = "afterturn"
    context = command.make_context(name, [*arguments])
    while isinstance(command, TyperGroup):
        _, found, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        assert found is not None
        command, name = found, f"{name} {found.name}"
        context = command.make_context(found.name, rest, parent=context)
    return name


def settings_of(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The settings model, fed with what a container would get; an unknown AFTERTURN_ variable fails the test."""
    for name, value in environment.items():
        if name.startswith("AFTERTURN_"):
            assert name.removeprefix("AFTERTURN_").lower() in Settings.model_fields, (
                f"{name} is not a setting"
            )
        monkeypatch.setenv(name, value)
    return Settings()


@pytest.fixture(scope="module")
def stack() -> compose.Compose:
    """Validated by its model: known keys, pinned images, ports on loopback only."""
    return compose.load()


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("redis:7.2.8", "redis:7"),
        ("redis:7.2.8", "redis"),
        ("apache/kafka:4.1.2", "apache/kafka:latest"),
        ("127.0.0.1:8080:8080", "8080:8080"),
        ("retries: 12", "tries: 12"),
        ('"8081"', "8081"),
        ('restart: "no"', "restart: no"),
    ],
)
def test_a_slip_of_the_pen_is_noticed(right: str, wrong: str) -> None:
    text = compose.FILE.read_text()
    assert right in text
    with pytest.raises(ValidationError):
        compose.load(text.replace(right, wrong))


@pytest.mark.rule("F4")
def test_every_agent_is_a_service_of_its_own(stack: compose.Compose) -> None:
    commands = {name: stack.services[name].command for name in AGENTS}

    assert sorted(AGENTS) == ["credits", "memories", "merge", "summarise", "window"]
    assert commands == {name: ["worker", name] for name in AGENTS}
    assert stack.services["gateway"].command == ["gateway"]


@pytest.mark.parametrize("name", OURS)
def test_every_command_is_one_that_the_cli_has(stack: compose.Compose, name: str) -> None:
    command = stack.services[name].command
    assert command is not None
    assert parse(command) == " ".join(["afterturn", *command[: 2 if name == "topics" else 1]])


@pytest.mark.parametrize("wrong", [["worker", "windows"], ["topic", "apply"], ["migrate", "--all"]])
def test_a_command_that_the_cli_has_not_is_noticed(wrong: list[str]) -> None:
    with pytest.raises(USAGE_ERROR):
        parse(wrong)


@pytest.mark.parametrize("name", OURS)
def test_every_setting_is_known_and_valid(
    stack: compose.Compose, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {
        key: compose.filled(value, SECRETS) for key, value in stack.services[name].environment.items()
    }
    settings = settings_of(environment, monkeypatch)

    assert settings.kafka == "kafka:9092"
    assert settings.summary_model == "extractive"
    assert settings.openai_api_key is None, "an empty variable counts as not set"
    if name == "gateway":
        assert settings.service_tokens == (SecretStr("token"),)


@pytest.mark.parametrize("name", OURS)
def test_addresses_name_services_and_their_ports(stack: compose.Compose, name: str) -> None:
    values = " ".join(stack.services[name].environment.values())
    hosts = set(re.findall(r"(?:^|[\s@/])([a-z]+):(\d+)", values))
    assert hosts == {("kafka", "9092"), ("redis", "6379"), ("clickhouse", "8123")}
    assert {host for host, _ in hosts} <= stack.services.keys()


def test_what_waits_for_health_waits_for_a_service_that_tells_it(stack: compose.Compose) -> None:
    for name, service in stack.services.items():
        for other, dependency in service.depends_on.items():
            target = stack.services[other]
            if dependency.condition == "service_healthy":
                assert target.healthcheck, f"{name} waits for the health of {other}, which has none"
            if dependency.condition == "service_completed_successfully":
                assert target.restart == "no", f"{name} waits for the end of {other}, which starts again"


def test_agents_wait_for_topics_and_schema(stack: compose.Compose) -> None:
    for name in (*AGENTS, "gateway"):
        waits = {other: d.condition for other, d in stack.services[name].depends_on.items()}
        assert waits["topics"] == waits["migrate"] == "service_completed_successfully"


def test_volumes_are_declared_and_files_are_there(stack: compose.Compose) -> None:
    sources = [volume.split(":")[0] for s in stack.services.values() for volume in s.volumes]
    named = {source for source in sources if not source.startswith(".")}

    assert named == set(stack.volumes)
    assert all((compose.ROOT / source).exists() for source in sources if source.startswith("."))


def test_ports_do_not_collide(stack: compose.Compose) -> None:
    published = [port.split(":")[1] for service in stack.services.values() for port in service.ports]
    assert len(published) == len(set(published))


def test_secrets_come_from_the_environment_and_have_no_default(stack: compose.Compose) -> None:
    values = [value for service in stack.services.values() for value in service.environment.values()]
    example = dict(
        line.split("=", 1)
        for line in (compose.ROOT / "infra/container/env.example").read_text().splitlines()
        if line and not line.startswith("#")
    )
    wanted = set().union(*map(compose.references, values))

    assert wanted == set(example), "env.example names every variable, and no other"
    with pytest.raises(KeyError, match="CLICKHOUSE_PASSWORD"):
        [compose.filled(value, {}) for value in values]
    assert not [name for name in ("CLICKHOUSE_PASSWORD", "GRAFANA_PASSWORD") if example[name]]


def test_a_worker_has_longer_to_stop_than_its_own_deadline(stack: compose.Compose) -> None:
    for name in (*AGENTS, "gateway"):
        assert stack.services[name].stop_grace_period == "30s"
    assert Settings().shutdown_deadline < 30


def test_kafka_is_the_version_of_the_pom(stack: compose.Compose) -> None:
    pom = (compose.ROOT / "infra/kafka/pom.xml").read_text()
    versions = set(re.findall(r"<groupId>org\.apache\.kafka</groupId>.*?<version>(.*?)</version>", pom, re.S))

    assert versions == {stack.services["kafka"].image.split(":")[1]}
    assert "://" not in pom.replace("http://maven.apache.org/POM/4.0.0", ""), "no download address"


def test_kafka_in_compose_is_configured_as_the_one_without_docker(stack: compose.Compose) -> None:
    environment = stack.services["kafka"].environment
    listeners = {part.split("://")[0] for part in environment["KAFKA_LISTENERS"].split(",")}
    protocols = {
        part.split(":")[0] for part in environment["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"].split(",")
    }

    assert listeners == protocols
    assert environment["KAFKA_AUTO_CREATE_TOPICS_ENABLE"] == "false"
    assert len(environment["CLUSTER_ID"]) == 22


def test_the_client_of_docker_finds_nothing_wrong() -> None:
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "compose", "version"], capture_output=True).returncode != 0:
        pytest.skip("`docker compose` is not there to validate docker-compose.yml")
    done = subprocess.run(
        [docker, "compose", "-f", str(compose.FILE), "config", "--quiet"],
        env={**SECRETS, "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_the_container_file_builds_the_lock_file() -> None:
    text = (compose.ROOT / "infra/container/Containerfile").read_text()
    bases = re.findall(r"^FROM (\S+)", text, re.M)
    copied = set(re.findall(r"^COPY (?!--from)(.*) /src/", text, re.M))
    sources = {name for line in copied for name in line.split()}

    assert all(re.match(compose.PINNED, base) for base in bases)
    assert "pip install --require-hashes -r /src/requirements.lock" in text
    assert "pip install --no-deps --no-build-isolation /src" in text
    assert re.findall(r"^USER (\S+)", text, re.M) == ["10001"]
    assert all((compose.ROOT / name).exists() for name in sources)
    assert {"schemas", "services", "streams", "infra", "pyproject.toml", "README.md", "LICENSE"} <= sources


def manifests() -> Iterator[tuple[str, dict[str, Any]]]:
    for file in sorted((compose.ROOT / "infra/kubernetes").glob("*.yaml")):
        for document in yaml.safe_load_all(file.read_text()):
            yield file.name, document


def containers() -> Iterator[tuple[str, dict[str, Any]]]:
    for file, document in manifests():
        spec = document.get("spec", {}).get("template", {}).get("spec", {})
        for container in (*spec.get("initContainers", ()), *spec.get("containers", ())):
            yield file, container


@pytest.mark.rule("F4")
def test_kubernetes_has_a_deployment_for_every_agent() -> None:
    names = {document["metadata"]["name"] for _, document in manifests() if document["kind"] == "Deployment"}
    assert names == {f"afterturn-{name}" for name in (*AGENTS, "gateway")}


def test_kubernetes_runs_the_same_image_with_known_commands_and_settings() -> None:
    shared = next(document for _, document in manifests() if document["kind"] == "ConfigMap")["data"]
    known = {f"AFTERTURN_{name.upper()}" for name in Settings.model_fields} | {
        "OPENAI_BASE_URL",
        "OPENAI_API_KEY",
    }
    for file, container in containers():
        assert container["image"] == OUR_IMAGE, file
        assert parse(container["args"]), file
        assert {each["name"] for each in container["env"]} <= known, file
    assert set(shared) <= known
    assert all(isinstance(value, str) for value in shared.values())


def test_dashboards_and_alerts_ask_for_metrics_that_exist() -> None:
    declared = {f"afterturn_{m.name}": m.kind for m in (*metrics.METRICS, *gateway_metrics.METRICS)}
    dashboard = json.loads((compose.ROOT / "infra/grafana/dashboards/afterturn.json").read_text())
    alerts = yaml.safe_load((compose.ROOT / "infra/prometheus/alerts.yml").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    expressions += [rule["expr"] for group in alerts["groups"] for rule in group["rules"]]
    asked = {name for expression in expressions for name in re.findall(r"afterturn_\w+", expression)}

    for name in asked:
        base = name.removesuffix("_bucket")
        assert base in declared, name
        assert (base != name) == (declared[base] is metrics.Kind.histogram), name
    assert {"afterturn_lag_records", "afterturn_dead_total"} <= asked


def test_prometheus_finds_every_agent(stack: compose.Compose) -> None:
    config = yaml.safe_load((compose.ROOT / "infra/prometheus/prometheus.yml").read_text())
    found = {
        (name, discovery["port"])
        for job in config["scrape_configs"]
        for discovery in job["dns_sd_configs"]
        for name in discovery["names"]
    }
    agent = int(stack.services["window"].environment["AFTERTURN_HEALTH_PORT"])
    gateway = int(stack.services["gateway"].environment["AFTERTURN_GATEWAY_PORT"])
    assert found == {*((name, agent) for name in AGENTS), ("gateway", gateway)}
