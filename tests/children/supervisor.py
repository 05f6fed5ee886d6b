"""Supervises the actor as the harness would, to be killed by a test: ``supervisor.py FOLDER TASKS_JSON [GPU ...]``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from flashcore.model.settings import Limits
from flashcore.runner.journal import Task
from flashcore.runner.process import LocalGpu, Program
from flashcore.runner.queue import Pool

tasks = [Task(t["name"], t["payload"]) for t in json.loads(sys.argv[2])]
actor = str(Path(__file__).with_name("actor.py"))
program = Program(command=lambda t, j: [sys.executable, actor, str(t), str(j)], limits=Limits(time_limit=600))
try:
    with Pool([LocalGpu(name) for name in sys.argv[3:]]) as pool:
        pool.run(tasks, program, Path(sys.argv[1]))
except KeyboardInterrupt:
    print("interrupted")
    sys.exit(130)
