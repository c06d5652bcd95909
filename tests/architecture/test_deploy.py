"""The deployment files cannot be run here; this is what can be known of them without it."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from rival_workers.cli.main import cli
from rival_workers.settings import WorkerSettings
from tests.support.documents import commands
from tests.support.workers import ROOT

COMPOSE = ROOT / "docker-compose.yml"
DOCKERFILE = ROOT / "deploy" / "Dockerfile"
ENV_EXAMPLE = ROOT / "deploy" / ".env.example"

Service = dict[str, Any]


def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())
    return loaded


SERVICES: dict[str, Service] = compose()["services"]


def instructions() -> list[list[str]]:
    joined = re.sub(r"\\\n", " ", DOCKERFILE.read_text())
    return [shlex.split(line) for line in joined.splitlines() if line and not line.startswith("#")]


def test_yamllint_has_nothing_to_say() -> None:
    config = ROOT / "deploy" / "yamllint.yml"
    command = [sys.executable, "-m", "yamllint", "--strict", "-c", str(config), str(COMPOSE), str(config)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_there_are_the_services_that_a_fleet_needs() -> None:
    assert set(SERVICES) == {"postgres", "redis", "migrate", "worker", "dashboard", "flower"}


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_has_an_image_or_a_dockerfile_that_exists(name: str) -> None:
    service = SERVICES[name]
    assert "image" in service or "build" in service
    if "build" in service:
        assert (ROOT / service["build"]["context"] / service["build"]["dockerfile"]).is_file()


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_depends_on_others_that_can_meet_the_condition(name: str) -> None:
    for other, how in SERVICES[name].get("depends_on", {}).items():
        assert other in SERVICES
        if how["condition"] == "service_healthy":
            assert "healthcheck" in SERVICES[other]


@pytest.mark.parametrize("name", sorted(set(SERVICES) - {"migrate"}))
def test_every_service_that_stays_has_a_health_check_and_is_restarted(name: str) -> None:
    assert SERVICES[name]["healthcheck"]["test"]
    assert SERVICES[name]["restart"] == "unless-stopped"


def test_workers_start_after_the_schema_is_there() -> None:
    assert SERVICES["migrate"]["command"] == ["db", "upgrade"]
    assert SERVICES["worker"]["depends_on"]["migrate"]["condition"] == "service_completed_successfully"


@pytest.mark.parametrize("name", ["migrate", "worker", "dashboard"])
def test_a_command_is_one_that_rival_has(name: str) -> None:
    words = [word for word in SERVICES[name]["command"] if not word.startswith("--")]
    command = commands(cli)[" ".join(words)]
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word.partition("=")[0] for word in SERVICES[name]["command"]} - set(words) <= known


def test_the_broker_does_not_evict_and_wants_a_password() -> None:
    command = " ".join(SERVICES["redis"]["command"])
    assert "--maxmemory-policy noeviction" in command
    assert "--requirepass" in command


def test_flower_is_off_unless_asked_for_and_needs_a_login() -> None:
    flower = SERVICES["flower"]
    assert flower["profiles"] == ["flower"]
    assert "FLOWER_BASIC_AUTH" in flower["environment"]
    assert "exit 1" in flower["command"][0]
    assert all(port.startswith("127.0.0.1:") for port in flower["ports"])


def test_the_dashboard_is_off_unless_asked_for_and_is_reached_from_this_machine_only() -> None:
    dashboard = SERVICES["dashboard"]
    assert dashboard["profiles"] == ["dashboard"]
    assert dashboard["ports"] == ["127.0.0.1:8233:8233"]
    # Its key and its users outlive the container.
    assert dashboard["volumes"] == [f"dashboard:{dashboard['working_dir']}"]


def test_the_dashboard_of_compose_is_closed_until_there_is_a_user_and_its_health_check_works(tmp_path: Path) -> None:
    """The command and the check of the file, on a free port instead of the container's."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    file = tmp_path / "rival.db"
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "DASHBOARD_HOST": "localhost"}
    env["RIVAL_DATABASE_URL"] = f"sqlite:///{file}"
    rival = [sys.executable, "-m", "rival_workers.cli"]
    words = [re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", word) for word in SERVICES["dashboard"]["command"]]
    command = [*rival, *words, f"--port={port}"]
    options: Any = {"cwd": tmp_path, "env": env, "text": True}
    subprocess.run([*rival, "db", "upgrade"], **options, check=True, capture_output=True)
    refused = subprocess.run(command, **options, capture_output=True, timeout=60, check=False)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == (
        "rival: The dashboard does not listen at 0.0.0.0 without a login: add a user first "
        "(`rival dashboard user add NAME --role operator`), let a proxy log users in (--trusted-proxy, "
        "--user-header), or let it listen on 127.0.0.1 only.\n"
    )
    add = [*rival, "dashboard", "user", "add", "ann", "--password", "correct horse battery"]
    subprocess.run(add, **options, check=True, capture_output=True)
    with subprocess.Popen(command, **options, stdout=subprocess.PIPE) as served:
        try:
            assert served.stdout is not None
            assert served.stdout.readline() == f"Dashboard: http://0.0.0.0:{port}/\n"
            _, interpreter, *check = SERVICES["dashboard"]["healthcheck"]["test"]
            assert interpreter == "python"
            check[-1] = check[-1].replace("8233", port)
            done = subprocess.run([sys.executable, *check], **options, capture_output=True, timeout=60, check=False)
            assert done.returncode == 0, done.stderr
            env["DASHBOARD_HOST"] = "other.example.com"
            assert subprocess.run([sys.executable, *check], **options, capture_output=True, check=False).returncode == 1
        finally:
            served.terminate()


def test_a_worker_has_time_for_its_grace_period() -> None:
    environment = SERVICES["worker"]["environment"]
    grace = float(re.sub(r"\D", "", environment["RIVAL_SHUTDOWN_GRACE"]))
    assert grace == WorkerSettings().shutdown_grace
    assert float(SERVICES["worker"]["stop_grace_period"].removesuffix("s")) > grace + 10


@pytest.mark.parametrize("name", SERVICES)
def test_every_setting_that_is_given_exists(name: str) -> None:
    known = {f"RIVAL_{field.name.upper()}" for field in fields(WorkerSettings)}
    given = {key for key in SERVICES[name].get("environment", {}) if key.startswith("RIVAL_")}
    assert given <= known


def test_named_volumes_are_declared_and_directories_exist() -> None:
    for service in SERVICES.values():
        for volume in service.get("volumes", []):
            source = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", volume).split(":")[0]
            assert source in compose()["volumes"] or (ROOT / source).is_dir()


def test_the_example_environment_names_every_variable_and_holds_no_secret() -> None:
    used = set(re.findall(r"(?<!\$)\$\{(\w+)", COMPOSE.read_text()))
    example = dict(re.findall(r"^(\w+)=(.*)$", ENV_EXAMPLE.read_text(), re.MULTILINE))
    assert set(example) == used
    assert not any(value for name, value in example.items() if "PASSWORD" in name or "AUTH" in name)


def test_what_the_dockerfile_copies_exists_and_is_let_through() -> None:
    let_through = (ROOT / "deploy" / "Dockerfile.dockerignore").read_text()
    for words in instructions():
        if words[0] == "COPY" and not words[1].startswith("--from"):
            for source in words[1:-1]:
                assert (ROOT / source).exists(), source
                assert f"!{source}\n" in let_through, source


def test_the_image_is_built_in_stages_and_runs_as_an_ordinary_user() -> None:
    names = [words[0] for words in instructions()]
    assert names.count("FROM") == 2
    assert ["USER", "rival"] in instructions()
    assert names.index("USER") > max(index for index, name in enumerate(names) if name == "RUN")


def test_the_image_installs_extras_that_exist_within_the_tested_versions() -> None:
    text = DOCKERFILE.read_text()
    assert "-c constraints.txt" in text
    [extras] = re.findall(r"\.\[([\w,]+)\]", text)
    project = (ROOT / "pyproject.toml").read_text()
    assert all(re.search(rf"^{extra} = \[", project, re.MULTILINE) for extra in extras.split(","))
