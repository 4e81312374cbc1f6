"""The dashboard and the alert rules in `deploy`: valid, and about metrics that the services really have."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from ruamel.yaml import YAML

from services.consumer.member.metrics import ConsumerMetrics
from services.control.live.feed.feed import EventFeed
from services.control.live.metrics import registry_for
from services.producer.http.metrics import ProducerMetrics
from services.queue.http.metrics import QueueMetrics
from services.queue.worker.queues import Queues
from tests.fakes.queues import InMemoryQueueStore
from tests.unit.control.http.test_app import InMemoryRunner
from tests.unit.control.sources import small_baton
from tests.unit.test_compose import COMPOSE, environment_of
from tests.unit.test_docs import anchors_of

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
RULES: dict[str, Any] = YAML(typ="safe").load(DEPLOY / "prometheus/rules/baton.yml")
SCRAPE: dict[str, Any] = YAML(typ="safe").load(DEPLOY / "prometheus/prometheus.yml")
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana/dashboards/baton.json").read_text())
STORIES = sorted((DEPLOY / "prometheus/tests").glob("*.yml"))
ALERTS = [rule for group in RULES["groups"] for rule in group["rules"]]
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
SCRAPED = {"job", "instance"}
"""Labels that Prometheus gives to everything that it scrapes."""
SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "gauge": ("",)}
needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None,
    reason="promtool is not installed: `bash .ci/promtool`, or Debian's package `prometheus`",
)


def test_ci_has_promtool_where_it_can_install_it() -> None:
    """In CI the tests below may be skipped only where `.ci/promtool` has no way to install it."""
    if os.environ.get("CI") != "true":
        pytest.skip("only CI must have promtool")

    answer = subprocess.run(
        ["bash", ".ci/promtool", "--check"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )

    assert answer.returncode == 0, answer.stdout + answer.stderr


@functools.cache
def metrics() -> dict[str, dict[str, set[str]]]:
    """The names of all samples that each service can have, with their labels, by its job."""
    view = small_baton().view()
    asyncio.run(view.step())
    registries = {
        "producer": ProducerMetrics().registry,
        "consumer": ConsumerMetrics([]).registry,
        "queue": QueueMetrics(Queues(InMemoryQueueStore())).registry,
        "control": registry_for(view, InMemoryRunner(), EventFeed()),
    }
    return {job: dict(samples_in(registry)) for job, registry in registries.items()}


def samples_in(registry: CollectorRegistry) -> Iterator[tuple[str, set[str]]]:
    """The names and labels of the samples of each metric, whether or not it has any yet."""
    metric: Metric
    for metric in registry.collect():
        own = set(getattr(metric, "_labelnames", ()))
        # Prometheus keeps a label that it gives itself, and renames ours
        labels = {f"exported_{name}" if name in SCRAPED else name for name in own}
        for suffix in SUFFIXES[metric.type]:
            yield f"{metric.name}{suffix}", labels | ({"le"} if suffix == "_bucket" else set()) | SCRAPED


def selectors_in(expression: str) -> list[tuple[str, str | None]]:
    """Each metric of Baton in an expression, with the job that it is asked of.

    >>> selectors_in('sum(baton_lag{job="consumer", x="y"}) + up{job="x"} + baton_streams')
    [('baton_lag', 'consumer'), ('baton_streams', None)]
    """
    found = re.findall(r'\b(baton_[a-z_]+)(?:\{(?:[^}]*\bjob="(\w+)")?[^}]*\})?', expression)
    return [(name, job or None) for name, job in found]


def labels_in(expression: str) -> set[str]:
    """The labels that an expression selects or sums by, besides those that it makes itself.

    >>> sorted(labels_in('sum by (a, b) (baton_x{c="d", e=~"f"})'))
    ['a', 'b', 'c', 'e']
    """
    made = set(re.findall(r'label_replace\(.*?, "(\w+)", "\$1"', expression))
    read = set(re.findall(r'label_replace\(.*?, "\w+", "\$1", "(\w+)"', expression))
    summed = {
        name.strip() for names in re.findall(r"\bby \(([^)]*)\)", expression) for name in names.split(",")
    }
    chosen = set(re.findall(r'[{,]\s*(\w+)\s*(?:=~|!~|!=|=)"', expression))
    return (summed | chosen | read) - made


EXPRESSIONS = {
    **{f"alert {rule['alert']}": rule["expr"] for rule in ALERTS},
    **{
        f"panel {panel['title']} {target['refId']}": target["expr"]
        for panel in PANELS
        for target in panel["targets"]
    },
}


def test_expressions_are_about_metrics_that_exist() -> None:
    """Each name is one of the service that the expression asks for it; at least one service without a job."""
    unknown = {
        (title, name)
        for title, expression in EXPRESSIONS.items()
        for name, job in selectors_in(expression)
        if name not in (metrics()[job] if job else set[str]().union(*metrics().values()))
    }

    assert unknown == set()


@pytest.mark.parametrize("title", [title for title in EXPRESSIONS if "ALERTS" not in EXPRESSIONS[title]])
def test_expressions_use_labels_that_their_metrics_have(title: str) -> None:
    """One that does not exist selects nothing, or sums everything into one line."""
    known = {
        label
        for name, job in selectors_in(EXPRESSIONS[title])
        for samples in ([metrics()[job]] if job else metrics().values())
        for label in samples.get(name, ())
    }

    assert labels_in(EXPRESSIONS[title]) <= known | SCRAPED


def test_expressions_ask_for_jobs_that_are_scraped() -> None:
    """The rules and the dashboard say `job="consumer"`, as the scrape settings do."""
    jobs = {one["job_name"] for one in SCRAPE["scrape_configs"]}
    asked = {job for expression in EXPRESSIONS.values() for job in re.findall(r'\bjob="(\w+)"', expression)}

    assert jobs == asked == metrics().keys()


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_every_alert_says_what_to_do(alert: dict[str, Any]) -> None:
    """In a sentence each; and where the page on operations has more."""
    assert alert["labels"]["severity"] in ("warning", "critical")
    assert alert["annotations"].keys() == {"summary", "action", "runbook"}
    page, _, anchor = alert["annotations"]["runbook"].partition("#")
    assert anchor in anchors_of(ROOT / page)


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_every_alert_has_a_story_in_which_it_fires(alert: dict[str, Any]) -> None:
    """And one in which none does; promtool tells them."""
    assert any(f'"{alert["alert"]}"' in file.read_text() for file in STORIES)


def test_the_names_of_alerts_differ() -> None:
    """A silence of one must not silence another."""
    assert len({alert["alert"] for alert in ALERTS}) == len(ALERTS)


@needs_promtool
@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "rules", "--lint=all", "--lint-fatal", "rules/baton.yml"),
        ("check", "config", "--syntax-only", "prometheus.yml"),
        ("test", "rules", *(f"tests/{file.name}" for file in STORIES)),
    ],
    ids=" ".join,
)
def test_promtool_accepts(arguments: tuple[str, ...]) -> None:
    """The rules, the scrape settings, and when each alert fires."""
    answer = subprocess.run(
        ["promtool", *arguments],
        cwd=DEPLOY / "prometheus",
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert answer.returncode == 0, answer.stdout + answer.stderr


@needs_promtool
def test_every_expression_can_be_parsed(tmp_path: Path) -> None:
    """Those of the dashboard, too, once Grafana has filled in its variables."""
    filled = [one.replace("$__rate_interval", "1m").replace("$group", ".*") for one in EXPRESSIONS.values()]
    rules = [{"record": f"expression_{number}", "expr": one} for number, one in enumerate(filled)]
    file = tmp_path / "rules.yml"
    file.write_text(json.dumps({"groups": [{"name": "all", "rules": rules}]}))

    answer = subprocess.run(
        ["promtool", "check", "rules", str(file)], capture_output=True, text=True, check=False, timeout=60
    )

    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_panels_explain_themselves_and_do_not_overlap() -> None:
    """Each has a title, a description and a place of its own on the grid of 24 columns."""
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert place["x"] + place["w"] <= 24
        taken |= cells

    assert all(panel["title"] and panel["description"] for panel in PANELS)
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_the_containers_find_what_they_are_given() -> None:
    """Every file that is mounted exists; Grafana shows the folder that the provisioning names."""
    mounts = {
        service: dict(one.split(":")[:2][::-1] for one in COMPOSE["services"][service]["volumes"])
        for service in ("prometheus", "grafana")
    }
    provisioning = YAML(typ="safe").load(DEPLOY / "grafana/provisioning/dashboards/baton.yml")
    (source,) = YAML(typ="safe").load(DEPLOY / "grafana/provisioning/datasources/prometheus.yml")[
        "datasources"
    ]
    (dashboards,) = {one["options"]["path"] for one in provisioning["providers"]}
    shown = environment_of("grafana")["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]

    given = [mount for of in mounts.values() for mount in of.values() if mount.startswith("./")]
    assert all((ROOT / mount).exists() for mount in given)
    assert (ROOT / mounts["grafana"][dashboards] / Path(shown).name).is_file()
    assert source["url"] == "http://prometheus:9090"
    assert [str(Path(file).parent) in mounts["prometheus"] for file in SCRAPE["rule_files"]] == [True]
    assert source["jsonData"]["timeInterval"] == SCRAPE["global"]["scrape_interval"]


def test_what_is_scraped_listens_there() -> None:
    """The names and ports are those of the containers; a producer has `/metrics` on its private port."""
    found = {}
    for one in SCRAPE["scrape_configs"]:
        for names in one.get("dns_sd_configs", []):
            found[one["job_name"]] = f"{names['names'][0]}:{names['port']}"
        for targets in one.get("static_configs", []):
            (found[one["job_name"]],) = targets["targets"]
    ports = dict.fromkeys(("consumer", "queue", "control"), "BATON_PORT") | {"producer": "BATON_PRIVATE_PORT"}

    assert found == {job: f"{job}:{environment_of(job)[variable]}" for job, variable in ports.items()}


def test_monitoring_is_a_profile_that_only_this_machine_reaches() -> None:
    """Grafana lets everybody look and nobody log in, so it may not be published further."""
    for service in ("prometheus", "grafana"):
        declared = COMPOSE["services"][service]
        assert declared["profiles"] == ["monitoring"]
        assert all(port.startswith("127.0.0.1:") for port in declared["ports"])
