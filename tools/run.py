"""`make run`: the same set-up as the demo, then a node that stays, with a one-time login to the operators' site."""

from __future__ import annotations

import os
import platform
import sys

from tools.demo import DATABASE, SETUP_LOG, prepare
from tools.environment import clean_environ
from tools.node import Node, debug_environ, free_port, manage
from tools.steps import ROOT, StepFailed, Steps, explain, relative

USUAL_PORT = 8080


def main() -> int:
    # Unlike the demo, it obeys settings of the person who runs it.
    own = {name: value for name, value in os.environ.items() if name.startswith("ORBIT_")}
    own.setdefault("ORBIT_DATABASE_URL", f"sqlite:///{DATABASE.relative_to(ROOT)}")
    environ = debug_environ() | own
    try:
        steps = Steps(f"Orbit · Python {platform.python_version()}", 4)
        prepare(steps, environ)
        node = Node(environ, port=_port())
        with steps.step("server") as step:
            try:
                node.start()
            except BaseException:
                node.stop()
                raise
            step.result = f"{node.url:<29} ready"
            step.note = f"log: {relative(node.log)}"
        try:
            link = manage(
                "orbit_login_link",
                "--url",
                node.url,
                environ=clean_environ(**environ),
                log=SETUP_LOG,
                cause="no one-time login could be made",
                next_command="make doctor",
            )
            print(f" Admin:  {link.strip()}")
            print("         (logs you in once, within 10 minutes, from this machine only)")
            print(f" API:    {node.url}/docs/ · credential: var/demo.credentials.json")
            print(" Ctrl-C ends it.")
            node.wait()
        finally:
            node.stop()
    except StepFailed as failure:
        explain(failure)
        return 1
    except KeyboardInterrupt:
        print("\nstopped; nothing is left running", file=sys.stderr)
        return 0
    return 0


def _port() -> int:
    """The usual port if it is free, else any."""
    import socket

    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", USUAL_PORT))
        except OSError:
            return free_port()
    return USUAL_PORT


if __name__ == "__main__":
    sys.exit(main())
