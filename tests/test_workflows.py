"""The workflows of .github follow their schema and zizmor's rules, and agree with pyproject.toml and the image."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

REPOSITORY = Path(__file__).parent.parent
WORKFLOWS = sorted((REPOSITORY / ".github" / "workflows").iterdir())
PROJECT: dict[str, Any] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
RELEASE: dict[str, Any] = yaml.safe_load((REPOSITORY / ".github/workflows/release.yaml").read_text(encoding="utf-8"))


def test_workflows_follow_the_schema() -> None:
    words = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows"]
    checked = subprocess.run([*words, *map(str, WORKFLOWS)], capture_output=True, text=True, check=False)

    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_use_only_actions_of_the_forge(workflow: Path) -> None:
    used = re.findall(r"uses: (\S+)", workflow.read_text(encoding="utf-8"))

    assert used
    assert [action for action in used if not re.fullmatch(r"actions/[a-z-]+@v\d+", action)] == []


def test_wheels_are_compiled_for_each_python_that_the_package_names() -> None:
    named = re.findall(r"Python :: 3\.(\d+)", "\n".join(PROJECT["project"]["classifiers"]))
    minors = [int(minor) for minor in named]
    settings = PROJECT["tool"]["cibuildwheel"]

    assert settings["build"].split() == [f"cp3{minor}-*" for minor in minors]
    assert settings["environment"] == {"KQP_COMPILE": "1"}
    assert PROJECT["project"]["requires-python"] == f">=3.{min(minors)},<3.{max(minors) + 1}"


def test_nothing_is_published_before_everything_is_built() -> None:
    jobs = RELEASE["jobs"]
    publishing = [name for name, job in jobs.items() if "id-token" in job.get("permissions", {})]

    assert publishing == ["publish"]
    assert set(jobs["publish"]["needs"]) == set(jobs) - {"publish"}
    assert jobs["publish"]["environment"] == "release"


def test_notes_of_a_release_are_its_entry_of_the_change_log(tmp_path: Path) -> None:
    (script,) = (step["run"] for step in RELEASE["jobs"]["publish"]["steps"] if "notes.md" in step.get("run", ""))
    taking = script.splitlines()[0]
    (tmp_path / "CHANGELOG.md").write_text(
        "# Changelog\n\n## 1.1.0 (2027-02-01)\n\n- New.\n\n## 1.0.0 (2027-01-01)\n\n- Old.\n"
    )

    subprocess.run(
        ["bash", "-c", taking], cwd=tmp_path, env={"GITHUB_REF_NAME": "v1.1.0", "PATH": "/usr/bin:/bin"}, check=True
    )

    assert (tmp_path / "notes.md").read_text().split() == ["-", "New."]
