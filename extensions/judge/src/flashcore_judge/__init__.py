"""``flashcore judge``: times and checks candidates whose authors want to win, without running their host code.

A candidate is device code and a plan of launches. Each step runs where the one before it cannot reach:

1. *Sealing* (``candidate``): the candidate's files are copied and hashed. Shapes, seeds and inputs are drawn later.
2. *Planning* (``preparing``, ``sandbox``, ``planner``): compilers and host code of a candidate made of sources run
   without GPU, network, home or writable files. Cubins and launches come out as JSON.
3. *Inspection* (``inspection``): cubins and launches are data, however they were made. What is not understood is
   refused.
4. *Inputs* (``answers``): the process that the suite's code runs in writes inputs to files.
5. *Measuring* (``trial.cpp``, ``measuring``): our program loads the cubins in a process of its own. It has inputs, no
   answers, and no code of the candidate or the suite but the kernels. Outputs come back as files.
6. *Judging* (``answers``): when the kernels' process has ended, the suite's computes the expected answers, compares,
   and forgets them.
7. The *verdict* (``verdict``) is JSON. ``board`` renders a folder of them.

The suite and this machine's compilers and driver are trusted. README.md lists the attacks.
"""

from flashcore.model.plugin import Plugin

PLUGIN = Plugin(
    name="judge",
    commands={"judge": "flashcore_judge.command"},
    help={"judge": "judge untrusted kernels: device code and a plan, no host code"},
    options=dict.fromkeys(("check", "bench", "profile"), "flashcore_judge.launcher"),
    tables={"judge": "flashcore_judge.draws:DrawForm"},
)
