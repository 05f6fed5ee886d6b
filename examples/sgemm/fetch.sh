#!/bin/sh
# Fetches siboehm's SGEMM_CUDA (MIT licence) beside this file, at the commit that this example was written for.
set -eu
cd "$(dirname "$0")"
git init -q SGEMM_CUDA
git -C SGEMM_CUDA fetch -q --depth 1 "${1:-https://github.com/siboehm/SGEMM_CUDA.git}" 60cba6f9b20a198116c76f18de8047f44df8c8b8
git -C SGEMM_CUDA checkout -q FETCH_HEAD
