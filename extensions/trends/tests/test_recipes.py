"""The manifests of the guide: valid YAML, with no key that Kubernetes or GitHub does not know."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from flashcore.cli import main as cli

yaml = pytest.importorskip("yaml")
jsonschema = pytest.importorskip("jsonschema")

TEXT = {"type": "string"}
COUNT = {"type": "integer", "minimum": 0}


def form(required: str = "", **properties: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": properties, "required": required.split()}


def listed(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": item, "minItems": 1}


TEXTS = {"type": "object", "additionalProperties": TEXT}
NAMED = form("name", name={"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"})
CONTAINER = form(
    "name image",
    name=TEXT,
    image=TEXT,
    command=listed(TEXT),
    args=listed(TEXT),
    resources=form(limits={"type": "object", "additionalProperties": {"type": ["string", "integer"]}}),
    volumeMounts=listed(form("name mountPath", name=TEXT, mountPath=TEXT)),
)
POD = form(
    "containers restartPolicy",
    restartPolicy={"enum": ["Never", "OnFailure"]},  # what a Job permits
    nodeSelector=TEXTS,
    containers=listed(CONTAINER),
    volumes=listed(form("name", name=TEXT, persistentVolumeClaim=form("claimName", claimName=TEXT))),
)
#: The part of batch/v1 CronJob that the recipe uses, after the Kubernetes API reference.
CRON_JOB = form(
    "apiVersion kind metadata spec",
    apiVersion={"const": "batch/v1"},
    kind={"const": "CronJob"},
    metadata=NAMED,
    spec=form(
        "schedule jobTemplate",
        schedule={"type": "string", "pattern": r"^\S+( \S+){4}$"},
        concurrencyPolicy={"enum": ["Allow", "Forbid", "Replace"]},
        jobTemplate=form("spec", spec=form("template", backoffLimit=COUNT, template=form("spec", spec=POD))),
    ),
)
#: The part of a workflow that the recipe uses, after GitHub's workflow syntax.
STEP = form("", **{"name": TEXT, "uses": {"type": "string", "pattern": "^[^@]+@[^@]+$"}, "run": TEXT, "if": TEXT})
STEP["properties"]["with"] = {"type": "object", "additionalProperties": {"type": ["string", "integer", "boolean"]}}
STEP["oneOf"] = [{"required": ["uses"]}, {"required": ["run"]}]
JOB = form("runs-on steps", **{"runs-on": {"anyOf": [TEXT, listed(TEXT)]}, "steps": listed(STEP)})
CRON = form("cron", cron={"type": "string", "pattern": r"^\S+( \S+){4}$"})
WORKFLOW = form(
    "on jobs",
    on=form("schedule", schedule=listed(CRON)),
    permissions={"type": "object", "additionalProperties": {"enum": ["read", "write", "none"]}},
    jobs={"type": "object", "additionalProperties": JOB, "minProperties": 1},
)

PAGE = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def manifests() -> list[Any]:
    return [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]


def test_the_cron_job_is_one() -> None:
    (manifest,) = [m for m in manifests() if m.get("kind")]
    jsonschema.validate(manifest, CRON_JOB)
    pod = manifest["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    mounts = {mount["name"] for container in pod["containers"] for mount in container["volumeMounts"]}
    assert mounts == {volume["name"] for volume in pod["volumes"]}
    misspelled = {**manifest, "spec": {**manifest["spec"], "jobtemplate": {}}}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(misspelled, CRON_JOB)


def test_the_workflow_keeps_its_runs_and_runs_every_night() -> None:
    (workflow,) = [m for m in manifests() if "jobs" in m]
    named = {"on" if key is True else key: value for key, value in workflow.items()}  # YAML reads `on` as true
    jsonschema.validate(named, WORKFLOW)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**named, "jobs": {"nightly": {"steps": []}}}, WORKFLOW)
    steps = workflow["jobs"]["nightly"]["steps"]
    commands = [step["run"] for step in steps if "run" in step]
    assert all('--profiles "$HOME/runs"' in command for command in commands), "the checkout is deleted"


def test_the_commands_in_the_manifests_are_understood() -> None:
    (cron_job,) = [m for m in manifests() if m.get("kind")]
    (container,) = cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    (workflow,) = [m for m in manifests() if "jobs" in m]
    steps = workflow["jobs"]["nightly"]["steps"]
    lines = [*container["args"], *(step["run"] for step in steps if "run" in step)]
    commands = re.findall(r"flashcore [^;&\n]+", "\n".join(lines))
    assert len(commands) == 4
    for command in commands:
        flashcore, *words = shlex.split(command)
        assert flashcore == "flashcore"
        cli.parser(words).parse_args(words)


@pytest.mark.parametrize(("profiled", "trends"), [(0, 0), (1, 0), (0, 3), (1, 3)])
def test_the_trends_are_read_even_if_the_budgets_of_the_night_failed(
    profiled: int, trends: int, tmp_path: Path
) -> None:
    (cron_job,) = [m for m in manifests() if m.get("kind")]
    (container,) = cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    stub = tmp_path / "flashcore"
    stub.write_text(f'#!/bin/sh\necho "$1" >> "{tmp_path}/log"\n[ "$1" = profile ] && exit {profiled}\nexit {trends}\n')
    stub.chmod(0o755)
    done = subprocess.run([*container["command"], *container["args"]], env={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert done.returncode == (trends or profiled)
    assert (tmp_path / "log").read_text().split() == ["profile", "trends"]
    (workflow,) = [m for m in manifests() if "jobs" in m]
    (step,) = [s for s in workflow["jobs"]["nightly"]["steps"] if "flashcore trends" in s.get("run", "")]
    assert "!cancelled()" in step["if"]


@pytest.mark.parametrize("news", ["", "- **slower** fast/mission"])
def test_the_slurm_job_mails_news_alone_and_ends_well(news: str, tmp_path: Path) -> None:
    (script,) = re.findall(r"```bash\n(#!/bin/bash\n#SBATCH.*?)```", PAGE, re.DOTALL)
    programs = {
        "git": "",
        "mail": 'cat > "$HOME/sent"',
        "flashcore": f'[ $1 = profile ] || printf %s "{news}" > trends.md',
    }
    (tmp_path / "kernels").mkdir()
    for name, line in programs.items():
        stub = tmp_path / name
        stub.write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
        stub.chmod(0o755)
    where = {"HOME": str(tmp_path), "PATH": f"{tmp_path}:/usr/bin:/bin"}
    subprocess.run(["bash", "-c", script], env=where, check=True)
    sent = tmp_path / "sent"
    assert (sent.read_text() if sent.exists() else "") == news
