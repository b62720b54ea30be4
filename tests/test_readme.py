"""The README's worker and client, run as they stand there."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

from tests.support.fixtures import RunningOrbit
from tests.support.server import ROOT, bootstrap, orbit_environ

README = (ROOT / "README.md").read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_the_readme_has_a_worker_and_a_client():
    assert len(PROGRAMS) == 2


def test_the_readmes_client_gets_what_its_worker_made(orbit_server: RunningOrbit, tmp_path: Path):
    credentials = bootstrap(
        orbit_server.site.database_url, application="readme", namespace="n", more=("--queue", "work")
    )
    environ = {
        **{name: value for name, value in orbit_environ("").items() if not name.startswith("ORBIT_")},
        "ORBIT_URL": orbit_server.url,
        "ORBIT_CREDENTIALS_FILE": str(credentials.path),
    }
    worker_file, client_file = tmp_path / "worker.py", tmp_path / "client.py"
    worker_file.write_text(PROGRAMS[0])
    client_file.write_text(PROGRAMS[1])

    worker = subprocess.Popen([sys.executable, str(worker_file)], env=environ, cwd=tmp_path)
    try:
        client = subprocess.run(
            [sys.executable, str(client_file)],
            env=environ,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        worker.send_signal(signal.SIGTERM)
        status = worker.wait(30)

    assert client.returncode == 0, client.stderr
    first, second = client.stdout.splitlines()
    assert re.fullmatch(r"[0-9a-f]{32} False", first)
    assert second == "{'pdf': 'invoices/4711.pdf'}"
    assert status == 0


def test_what_the_readme_links_to_exists():
    links = re.findall(r"\]\(([^)#]+)\)", README)

    assert [link for link in links if "://" not in link and not (ROOT / link).exists()] == []


def test_the_commands_that_the_readme_names_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))

    assert set(re.findall(r"make ([a-z-]+)", README)) <= targets
