"""Supervises the actor as the harness would, to be killed by a test: ``supervisor.py FOLDER TASKS_JSON [GPU ...]``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from flashcore.measure.workers import supervisor
from flashcore.measure.workers.gpus import LocalGpu
from flashcore.measure.workers.limits import Limits

tasks = [supervisor.Task(t["name"], t["payload"]) for t in json.loads(sys.argv[2])]
actor = str(Path(__file__).with_name("actor.py"))
limits = Limits(time_limit=600, places=[LocalGpu(name) for name in sys.argv[3:]], refill=True)
try:
    supervisor.supervise(tasks, Path(sys.argv[1]), lambda t, j: [sys.executable, actor, str(t), str(j)], limits)
except KeyboardInterrupt:
    print("interrupted")
    sys.exit(130)
