"""Environment of every Ray process of Baton, on one machine and in pods. Most of it is read when Ray is imported."""

from __future__ import annotations

from collections.abc import Mapping

#: What both have in common.
COMMON: Mapping[str, str] = {
    # A bare local Ray makes a token file and from then on asks for it.
    "RAY_AUTH_MODE": "disabled",
    # Switched off, the dashboard still reports that it is: to this machine then, where nobody listens.
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_USAGE_STATS_REPORT_URL": "http://127.0.0.1:9",
    # References inside by-value messages would be pinned for ever; Baton sends none, and this makes one raise.
    "RAY_allow_out_of_band_object_ref_serialization": "0",
    "TOKENIZERS_PARALLELISM": "false",
    # Replies to the proxy go by value, and a process has one event loop in place of three in threads that hand tokens
    # on: Serve's own defaults took 1.21 times the CPU per streamed token (tests/bench/results/streams.json).
    "RAY_SERVE_PROXY_USE_GRPC": "1",
    "RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "0",
    "RAY_SERVE_RUN_ROUTER_IN_SEPARATE_LOOP": "0",
    # Logs are JSON: of Ray's own programs, of its Python processes, and of replicas with what they and their libraries
    # print; Serve would write each line once more, as text, to the standard error. `env` and `settings.logs` change it.
    "RAY_BACKEND_LOG_JSON": "1",
    "RAY_LOGGING_CONFIG_ENCODING": "JSON",
    "RAY_SERVE_LOG_TO_STDERR": "0",
    # The proxy echoes any request id, and has plain text or nothing to say where no replica answers: this mends both.
    "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": "app.deployments.proxy:middlewares",
}

#: What pods have beside it: the image's folders, and places that can be written to where the image cannot.
PODS: Mapping[str, str] = {
    "PYTHONPATH": "/opt/baton/app/ops/python_start:/opt/baton",
    "HOME": "/tmp",  # noqa: S108 - a volume of the pod's own
    "XDG_CACHE_HOME": "/tmp/cache",  # noqa: S108
    "HF_HOME": "/tmp/huggingface",  # noqa: S108
    # Nobody is told that it runs.
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
}
