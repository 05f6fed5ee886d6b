#!/bin/bash
# On the machine with the GPU: builds all of configs.txt (and with stamps those whose names match $2), checks, times.
# A configuration that hangs or faults is passed over by the next start. bash go.sh SECONDS [NAMES]
set -o pipefail
export PYTHONUNBUFFERED=1 OUT=${OUT:-.}
python3 build.py --jobs 16 | grep -v "0/0/0 $"
[ -n "$2" ] && python3 build.py --jobs 16 --stamps --only "$2" | grep -v "0/0/0 $"
for i in 1 2 3; do
  timeout "${1:-60}" python3 driver.py plan.json 2>&1 | tee -a "$OUT/log.txt"
  rc=$?
  [ $rc -eq 0 ] && break
  echo "driver ended with $rc"
done
