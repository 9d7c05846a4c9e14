"""Uses the wheel in `dist/` alone, on several Pythons, with the oldest and with the newest libraries; a script.

python -m tests.wheel.check_wheel PYTHON [PYTHON ...] [--output REPORT]

For each Python, installs the wheel twice into an empty environment in a temporary folder: with the lowest versions that
its dependencies allow and that have a wheel for this Python, and with the highest ones. Then runs `try_wheel.py` there.
Fails if any of them does; the report, a JSON file, and its table, a CSV file, are written all the same. uv installs,
and its environment variables have their usual effect: `UV_TORCH_BACKEND=cpu` takes PyTorch's CPU builds, `UV_CACHE_DIR`
is where downloads are kept.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from email.parser import Parser
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from dgvf_agents.execution.devices import hardware
from dgvf_agents.storage.files import write_bytes

TRY = Path(__file__).with_name("try_wheel.py")
COMMAND = "make wheel-check"
RESOLUTIONS = {"oldest": "lowest-direct", "newest": "highest"}
"""uv's names of them. Dependencies of dependencies are the newest: their bounds are not ours."""
VARIABLES = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
"""Left out, since they would lead to another environment or to the source tree."""


def built_wheel(folder: Path) -> Path:
    """The one wheel in a folder.

    Raises:
        FileNotFoundError: there is none, or several.
    """
    wheels = sorted(folder.glob("dgvf-*.whl"))
    if len(wheels) != 1:
        raise FileNotFoundError(f"{folder} must hold one wheel, as after `make wheel`; found {len(wheels)}")
    return wheels[0]


def requirements(wheel: Path) -> list[str]:
    """What a wheel requires without its extras."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode())
    return [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]


def check(wheel: Path, python: str, libraries: str, folder: Path) -> dict[str, Any]:
    """Install a wheel and use it; a row of the report.

    Args:
        wheel: the wheel.
        python: interpreter, as a command or a path.
        libraries: a key of `RESOLUTIONS`.
        folder: an empty folder, for the environment and everything that is written.
    """
    try:
        interpreter = install(wheel, python, RESOLUTIONS[libraries], folder)
    except subprocess.CalledProcessError as error:
        return {"libraries": libraries, "versions": {"python": python}, "failure": f"installation: {error.stderr}"}
    work = folder / "work"
    work.mkdir()
    shutil.copy(TRY, work)
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    environment["XDG_CACHE_HOME"] = str(folder / "cache")  # compiled functions of others must not help
    report = work / "report.json"
    subprocess.run([interpreter, TRY.name, report], cwd=work, env=environment, check=False)
    return {"libraries": libraries, **json.loads(report.read_text(encoding="utf-8"))}


def install(wheel: Path, python: str, resolution: str, folder: Path) -> Path:
    """Install a wheel into a new environment in `folder`; its interpreter.

    Raises:
        CalledProcessError: the wheel cannot be installed.
    """
    pins, wanted, venv = folder / "pins.txt", folder / "requirements.txt", folder / "venv"
    wanted.write_text("\n".join(requirements(wheel)), encoding="utf-8")
    wheels = ("--quiet", "--only-binary", ":all:")
    choice = ("--resolution", resolution, "--python", python)
    _uv("pip", "compile", wanted, *choice, *wheels, "--output-file", pins)
    _uv("venv", "--quiet", "--no-project", "--python", python, venv)
    interpreter = venv / ("Scripts" if os.name == "nt" else "bin") / "python"
    _uv("pip", "install", "--python", interpreter, *wheels, "--constraints", pins, wheel)
    return interpreter


def _uv(*arguments: str | Path) -> str:
    """What uv prints, run outside of the repository."""
    command = [sys.executable, "-m", "uv", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tempfile.gettempdir())
    sys.stderr.write(done.stderr)
    done.check_returncode()
    return done.stdout


def table_of(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """A column for each environment, a row for each library, as `docs/installation.md` shows them."""
    columns = {
        f"Python {row['versions']['python']}, {row['libraries']}": {
            **row["versions"],
            "**result**": "failed" if row["failure"] else "passed",
        }
        for row in rows
    }
    return pd.DataFrame(columns).drop("python").fillna("–")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pythons", nargs="+", metavar="PYTHON", help="interpreter, as a command or a path")
    parser.add_argument("--dist", type=Path, default=Path("dist"), help="folder with the wheel")
    parser.add_argument("--output", type=Path, help="the report; its table goes beside it, as CSV")
    arguments = parser.parse_args()
    wheel, rows, output = built_wheel(arguments.dist).resolve(), [], arguments.output
    for python in arguments.pythons:
        for libraries in RESOLUTIONS:
            print(f"{python} with the {libraries} libraries", flush=True)
            with tempfile.TemporaryDirectory(prefix="wheel-") as folder:
                rows.append(check(wheel, python, libraries, Path(folder)))
    if output:
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        report = {"command": COMMAND, "wheel": digest, "hardware": hardware(torch.device("cpu")), "rows": rows}
        write_bytes(output, (json.dumps(report, indent=1) + "\n").encode())
        table_of(rows).to_csv(output.with_suffix(".csv"), lineterminator="\n")
    failures = [row["failure"] for row in rows if row["failure"]]
    if failures:
        sys.exit("\n\n".join([f"{len(failures)} of {len(rows)} environments failed", *failures]))


if __name__ == "__main__":
    main()
