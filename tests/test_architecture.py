"""The promised shape: import order, a plain engine, a standard-library catalog, one image."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
import yaml
from importlinter.cli import lint_imports
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent

_WITHOUT_DJANGO = """
import pkgutil, sys
for name in ("django", "celery", "redis", "ninja", "pydantic", "pygments", "torch"):
    sys.modules[name] = None
import kb.catalog, triage.engine
for package in (kb.catalog, triage.engine):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not module.name.endswith("__main__"):
            __import__(module.name)
            print(module.name)
"""


def test_import_contracts_hold(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    status = lint_imports(no_cache=True)
    assert status == 0, capsys.readouterr().out


def test_engine_and_catalog_import_with_django_blocked() -> None:
    result = subprocess.run(
        [sys.executable, "-c", _WITHOUT_DJANGO],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert result.returncode == 0, result.stderr
    assert {"kb.catalog.loader", "triage.engine.lines"} <= set(result.stdout.split())


@pytest.mark.parametrize("package", ["kb/catalog", "triage/management/supervision/lifeline.py"])
def test_only_the_standard_library_is_imported(package: str) -> None:
    place = ROOT / package
    files = [place] if place.is_file() else sorted(place.rglob("*.py"))
    assert files
    foreign = {
        (file.name, name)
        for file in files
        for name in _imported(file)
        if name.split(".")[0] not in sys.stdlib_module_names and not name.startswith("kb.catalog")
    }
    assert not foreign


def test_every_package_that_is_imported_is_asked_for() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    # Sign-in by OpenID Connect is an extra, and its one module is loaded where it is configured.
    wanted = [*project["dependencies"], *project["optional-dependencies"]["oidc"]]
    asked_for = {canonicalize_name(Requirement(line).name) for line in wanted}
    # What a dependency of ours is known to bring along by its own contract.
    asked_for |= {"asgiref", "kombu", "pydantic", "billiard"}
    files = [
        file
        for package in ("kb", "triage")
        for file in (ROOT / package).rglob("*.py")
        if "pitfalls" not in file.relative_to(ROOT).parts
    ]
    ours = {"kb", "triage"} | sys.stdlib_module_names
    imported = {name.split(".")[0] for file in files for name in _imported(file)} - ours
    distributions = packages_distributions()
    missing = {
        name
        for name in imported
        if not {canonicalize_name(d) for d in distributions.get(name, ())} & asked_for
    }
    assert missing == set()


def _imported(file: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            names.add(node.module)
    return names


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    """docker-compose.yml, anchors and merges resolved."""
    with (ROOT / "docker-compose.yml").open(encoding="utf-8") as file:
        loaded: dict[str, Any] = yaml.safe_load(file)
    return loaded


def test_compose_runs_one_image_with_one_command_a_service(compose: dict[str, Any]) -> None:
    services = compose["services"]
    assert set(services) == {
        "prepare", "web", "worker", "beat", "cpu-worker", "gpu-worker", "redis", "postgres"
    }  # fmt: skip
    ours = {name: service for name, service in services.items() if "build" in service}
    assert set(services) - set(ours) == {"redis", "postgres"}
    assert len({service["image"] for service in ours.values()}) == 1
    on_demand = {name for name, service in services.items() if service.get("profiles")}
    assert on_demand == {"cpu-worker", "gpu-worker"}
    for name, service in ours.items():
        # A list needs no shell: pasted after `docker run IMAGE` or into a terminal it is the same.
        command = service["command"]
        assert (Path(sys.executable).parent / command[0]).exists(), name
        assert {"SECRET_KEY", "DATABASE_URL", "REDIS_URL"} <= set(service["environment"])


def test_compose_services_wait_for_what_they_need(compose: dict[str, Any]) -> None:
    services = compose["services"]
    for name, service in services.items():
        for needed, condition in service.get("depends_on", {}).items():
            assert needed in services, name
            if condition["condition"] == "service_healthy":
                assert "healthcheck" in services[needed], needed
    for name in ("web", "worker", "beat", "cpu-worker", "gpu-worker"):
        assert set(services[name]["depends_on"]) == {"prepare", "redis", "postgres"}


def test_compose_workers_listen_to_different_queues(compose: dict[str, Any]) -> None:
    def queues(name: str) -> str:
        command = compose["services"][name]["command"]
        flag = "--queues" if "--queues" in command else "--queue"
        return str(command[command.index(flag) + 1])

    found = [queues(name) for name in ("worker", "cpu-worker", "gpu-worker")]
    assert found == ["triage", "cpu", "gpu"]


def test_image_is_built_from_what_is_there() -> None:
    lines = (ROOT / "Dockerfile").read_text("utf-8").splitlines()
    copied = [name for line in lines if line.startswith("COPY ") for name in line.split()[1:-1]]
    assert "constraints.txt" in copied
    assert [name for name in copied if not (ROOT / name).exists()] == []
