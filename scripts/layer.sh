#!/usr/bin/env bash
# Runs one layer of the tests, prints its duration, and fails if it exceeds the budget.
# Usage: scripts/layer.sh NAME SECONDS COMMAND...   Budgets are for two cores; YUMEN_TEST_SLOWNESS multiplies them.
set -euo pipefail
name=$1
budget=$(($2 * ${YUMEN_TEST_SLOWNESS:-1}))
shift 2
started=$SECONDS
"$@"
took=$((SECONDS - started))
echo "layer $name: $took s of $budget s"
if ((took > budget)); then
    echo "layer $name exceeds its budget: make its tests faster, or raise the budget in the Makefile with a reason" >&2
    exit 1
fi
