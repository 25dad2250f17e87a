"""The role `model`: llama.cpp's server with a tiny chat model, reachable by the host alone.

Owns the server of one start. Must not know who asks it or why. Invariant: it listens on one Unix
socket, never on a network port, and answers nobody without the key that came over its standard
input (never argv, environment or a file). Its standard output carries one line for the host,
ready or failed; whatever the native code prints goes to standard error.
"""

import json
import os
import resource
import signal
import sys
from typing import Any

from desktop import process


def _serve(order: dict[str, Any]) -> Any:
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = order["model"]
    parameters.model_alias = {order["alias"]}
    parameters.hostnames = [order["socket"]]
    parameters.api_keys = [order["key"]]
    parameters.n_ctx = order["context_tokens"]
    parameters.n_parallel = 1
    parameters.cpuparams.n_threads = order["threads"]
    parameters.cpuparams_batch.n_threads = order["threads"]
    parameters.n_threads_http = 4
    # The model's own template puts a long system text before a conversation that has none, and this small
    # a model then loses the question (the capital of France: 3 of 8 right with it, 8 of 8 without).
    parameters.use_jinja = False
    # The context is given and small: measuring devices and a dry run would only delay the first answer.
    parameters.n_gpu_layers = 0
    parameters.fit_params = False
    parameters.warmup = False
    # By default up to 8 GB of earlier prompts would be kept.
    parameters.cache_ram_mib = 0
    parameters.cache_idle_slots = False
    # Nothing but the chat interface: no page, no view of what others asked.
    parameters.ui = False
    parameters.endpoint_slots = False
    parameters.endpoint_props = False
    parameters.cors_origins = ""
    parameters.verbosity = 1  # errors only: what people write is never printed
    return xllamacpp.Server(parameters)


def main(argv: list[str]) -> int:
    """Serve until stopped; the order (socket, key, model file, limits) is one JSON line on standard input."""
    if argv:
        print("remuda: the role model is started by the host only", file=sys.stderr)
        return 2
    process.undumpable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.umask(0o177)
    order = json.loads(sys.stdin.buffer.readline())
    report = os.dup(1)
    os.dup2(2, 1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)

    def say(message: dict[str, Any]) -> None:
        os.write(report, json.dumps(message).encode() + b"\n")

    try:
        server = _serve(order)
    except Exception as fault:  # the native code raises what it likes; all of it means that there is no server
        say({"failed": f"{type(fault).__name__}: {fault}"[:500]})
        return 1
    say({"ready": server.listening_address})
    while True:
        signal.pause()  # SIGTERM ends the process where it stands: it holds nothing that has to be saved
