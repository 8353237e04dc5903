"""The alerts. Those on objectives follow from ``slos.py``; those on causes stand here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dashboards.promql import (
    AWAITED,
    BY,
    COUNTED,
    GIVEN,
    HURT,
    WORKING,
    grown,
    of_objects,
    quantile,
    select,
    total,
)
from dashboards.slos import FAST, FEWEST, SLOS, SLOW, Severity, burns


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert and its section of the runbook. ``board`` is the uid of the board that shows the cause.

    ``look`` and ``do`` are lines of the runbook: where to look, and what then to do. ``needs`` is what else has to be
    scraped.
    """

    name: str
    severity: Severity
    wait: str
    expr: str
    summary: str
    description: str
    board: str
    look: tuple[str, ...]
    do: tuple[str, ...]
    needs: str = ""


_GATEWAY = 'application="pipeline",deployment="gateway"'
_FIRST = "ray_baton_time_to_first_token_milliseconds"
_WHERE = " in {{ $labels.namespace }}"


def _increased(metric: str, window: str, *by: str) -> str:
    """Return where a counter went up within a window, if only once and with the count that it was born with."""
    return f"{grown(metric, window, by=(*BY, *by))} > 0"


def _had_gateway(window: str) -> str:
    replicas = select("ray_serve_deployment_replica_healthy", _GATEWAY)
    return f"max by (namespace, job) (max_over_time({replicas}[{window}])) > 0"


def _first_token(window: str) -> str:
    by = (*BY, "model")
    return quantile(0.95, _FIRST, window, GIVEN, AWAITED, by=by)


def _burning() -> Iterator[Alert]:
    for slo in SLOS:
        for speed, pairs, severity in (("Fast", FAST, slo.fast), ("Slow", SLOW, "warning")):
            windows = " or ".join(f"{pair.short} and {pair.long}" for pair in pairs)
            yield Alert(
                f"Baton{slo.title}Burns{speed}",
                severity,
                "2m" if speed == "Fast" else "15m",
                burns(slo, pairs),
                f"The error budget of {slo.name} burns {speed.lower()}{_WHERE}",
                f"{slo.promise} The budget for the rest burns too fast over {windows}; "
                "{{ $value | humanizePercentage }} of the requests are bad.",
                "baton-overview",
                slo.look,
                slo.do,
            )


_INDEX_JOB, _PENDING = 'job_name=~"baton-index-.+"', ('phase="Pending"', 'pod=~"baton-.+"')
_GROWTH = 0.01
_LATE, _ANSWERED = 'outcome="own_deadline"', 'outcome="answered"'
_FAILED, _ALL = 'outcome="failed"', 'le="+Inf"'
_PIPELINE = (
    Alert(
        "BatonLatencySpike",
        "warning",
        "10m",
        f"{_first_token('10m')}\n> 2 * {_first_token('1d')}\nand {_first_token('10m')} > 500\n"
        f"and {grown(f'{_FIRST}_bucket', '10m', GIVEN, AWAITED, _ALL, by=(*BY, 'model'))} >= {FEWEST}",
        "First tokens of {{ $labels.model }} take twice as long as over the day" + _WHERE,
        "The 95th percentile is {{ $value | humanize }} ms, twice that of the last day.",
        "baton-pipeline",
        ("Pipeline board: which stage's row went up, and which queue.", "Engine board: waiting requests and cache."),
        (
            "Raise `max_replicas` in the options of the stage that queues.",
            "Let answers be shorter (`settings.limits`).",
        ),
    ),
    Alert(
        "BatonErrorRate",
        "warning",
        "5m",
        f"{grown('ray_baton_requests_total', '10m', WORKING, AWAITED, HURT)}\n"
        f"/ {grown('ray_baton_requests_total', '10m', WORKING, AWAITED, COUNTED)} > 0.05\n"
        f"and {grown('ray_baton_requests_total', '10m', WORKING, AWAITED, HURT)} >= {FEWEST}",
        "More than one question in twenty fails" + _WHERE,
        "{{ $value | humanizePercentage }} of the questions failed, were shed or ran into their deadline.",
        "baton-overview",
        ("Overview: requests by outcome and status.", "The gateway's log names the stage of each fault by request id."),
        ("Follow the stage that the log names: engine, retriever or store.",),
    ),
    Alert(
        "BatonNothingAnswered",
        "warning",
        "5m",
        # Deadlines of the callers' own count for no objective: where all of them set some, a hang would not be seen.
        f"{grown('ray_baton_requests_total', '10m', WORKING, AWAITED, _LATE)} >= {FEWEST}\n"
        f"unless {grown('ray_baton_requests_total', '10m', WORKING, AWAITED, _ANSWERED)} > 0",
        "No question is answered within its caller's deadline" + _WHERE,
        "{{ $value | humanize }} requests of ten minutes passed a deadline of their callers', and none was answered.",
        "baton-overview",
        ("Overview: requests by outcome.", "Pipeline board: which stage holds requests and gives none back."),
        ("A stage hangs: restart its replicas.", "It is one caller alone: ask for longer `timeout_seconds` there."),
    ),
    Alert(
        "BatonShedding",
        "warning",
        "5m",
        f"{grown('ray_baton_sheds_total', '10m', AWAITED, by=(*BY, 'stage'))} / 600 > 0.1",
        "The {{ $labels.stage }} sheds requests" + _WHERE,
        "{{ $value | humanize }} requests a second are refused with 503 because the queue is full.",
        "baton-pipeline",
        (
            "Pipeline board, row of the stage: queue wait and requests at work.",
            "Row gateway: which priority class is shed; of the lowest it may be what was meant.",
        ),
        ("Raise the stage's replicas; or its `max_queued_requests` if callers rather wait.",),
    ),
    Alert(
        "BatonQueueGrowing",
        "warning",
        "5m",
        "min_over_time(baton:queued:sum{" + 'namespace="baton",job="baton-metrics"' + "}[10m]) > 0\n"
        "and deriv(baton:queued:sum{" + 'namespace="baton",job="baton-metrics"' + "}[10m]) * 600 > 8",
        "The queue only grows" + _WHERE,
        "{{ $value | humanize }} requests waited at the least over ten minutes, and their number grows.",
        "baton-pipeline",
        ("Pipeline board: queued requests by stage.", "Engine board: requests waiting in the engine."),
        ("Raise `max_replicas` of the stage that queues.", "Where GPUs are short, lower `max_queued_requests`."),
    ),
    Alert(
        "BatonGuardrailFailingOpen",
        "critical",
        "0m",
        _increased("ray_baton_guardrail_failed_open_total", "10m", "direction"),
        "Texts pass the guardrail without a full verdict" + _WHERE,
        "A rule or classifier could not be evaluated ({{ $labels.direction }}), and the policy lets texts pass then.",
        "baton-pipeline",
        ("The gateway's log names the rule.", "Pipeline board, row guardrail."),
        ("Mend the classifier; until then set `onError: fail_closed` of its policy if no text may pass unjudged.",),
    ),
    Alert(
        "BatonBatchRowsFail",
        "warning",
        "10m",
        f"{grown('ray_baton_batch_rows_total', '15m', _FAILED)}\n"
        f"/ {grown('ray_baton_batch_rows_total', '15m')} > 0.5\n"
        f"and {grown('ray_baton_batch_rows_total', '15m', _FAILED)} >= {FEWEST}",
        "Most rows of the batches fail" + _WHERE,
        "{{ $value | humanizePercentage }} of the rows that ended in a quarter of an hour have no answer.",
        "baton-batch",
        (
            "Batch board: rows by outcome. A batch's error file names the fault of each row.",
            "All alike: a wrong model or profile in the rows, or a key that may not use it.",
        ),
        ("Mend the rows and send them again; a run of `app.ops.batch` asks failed rows again with `--retry-failed`.",),
    ),
    Alert(
        "BatonConfigRefused",
        "warning",
        "0m",
        _increased("ray_baton_config_refused_total", "15m", "deployment"),
        "The {{ $labels.deployment }} refused new settings" + _WHERE,
        "The settings before stay in force; the log says which value is wrong.",
        "baton-overview",
        ("The log of <deployment>: `new settings refused`.",),
        ("Mend the value and upgrade again; until then replicas that start take the settings before as well.",),
    ),
    Alert(
        "BatonConfigDiffers",
        "warning",
        "10m",
        # Within one Ray cluster: while one replaces another, the two differ by right.
        f"max by (namespace, job, deployment, SessionName) ({select('ray_baton_config_version')})\n"
        f"!= min by (namespace, job, deployment, SessionName) ({select('ray_baton_config_version')})",
        "Replicas of {{ $labels.deployment }} have different settings" + _WHERE,
        "One replica refused or missed a change, so the same question gets different answers.",
        "baton-overview",
        ("Overview: versions of the configuration.", "`serve status` on the head."),
        ("Upgrade again; a replica that still differs is restarted by deleting its pod.",),
    ),
    Alert(
        "BatonIndexShrunk",
        "warning",
        "10m",
        "max by (namespace, job, collection) (" + select("ray_baton_index_passages") + ")\n"
        "< 0.5 * max by (namespace, job, collection) (max_over_time(" + select("ray_baton_index_passages") + "[1d]))",
        "The collection {{ $labels.collection }} lost half of its passages" + _WHERE,
        "It holds {{ $value }} passages, less than half of what it held within a day.",
        "baton-pipeline",
        ("Pipeline board, row retriever: size of the index.",),
        ("Find who deleted the documents; index them again with the collection's Job.",),
    ),
    Alert(
        "BatonIndexStale",
        "warning",
        "5m",
        f"max by (namespace, job_name) ({of_objects('kube_job_status_failed', _INDEX_JOB)}) > 0\n"
        f"unless max by (namespace, job_name) ({of_objects('kube_job_status_succeeded', _INDEX_JOB)}) > 0",
        "The Job {{ $labels.job_name }} that fills the index fails" + _WHERE,
        "Answers rest on documents as they were before. It tells of the chart's own Jobs alone: what comes over HTTP "
        "or from jobs of yours says itself whether it failed.",
        "baton-pipeline",
        ("`kubectl logs job/<job_name>`.",),
        ("Mend the documents or the path that the log names, and upgrade: the Job runs again.",),
        "kube-state-metrics",
    ),
)
_CLUSTER = (
    Alert(
        "BatonKvCacheFull",
        "warning",
        "10m",
        f"max by (namespace, job, model_name) ({select('ray_vllm_kv_cache_usage_perc')}) > 0.95\n"
        f"and on (namespace, job, model_name) {total('ray_vllm_num_requests_waiting', by=(*BY, 'model_name'))} > 0",
        "The KV cache of {{ $labels.model_name }} is full" + _WHERE,
        "{{ $value | humanizePercentage }} of its blocks are in use and requests wait for them.",
        "baton-engine",
        ("Engine board: cache and waiting requests.",),
        ("More replicas; a smaller `max_model_len`; a higher `gpu_memory_utilization`; an FP8 cache.",),
    ),
    Alert(
        "BatonGatewayDown",
        "critical",
        "3m",
        # The gateway itself counts requests, so that objectives see nothing of those that none was there for. Serve's
        # controller tells of its replicas; where that is gone, too, nothing is known of them for a while.
        f"max by (namespace, job) ({select('ray_serve_deployment_status', _GATEWAY)}) and {_had_gateway('1d')}\n"
        f"unless max by (namespace, job) ({select('ray_serve_deployment_replica_healthy', _GATEWAY)}) > 0\n"
        f"or {_had_gateway('1d')}\n"
        f"unless max by (namespace, job) (max_over_time({select('ray_serve_deployment_status', _GATEWAY)}[15m]))",
        "There is no gateway: nobody gets an answer" + _WHERE,
        "No replica of the gateway is healthy, though one was within a day; callers get 503 from Serve's proxy.",
        "baton-cluster",
        (
            "`serve status` on the head: what the application `pipeline` says; whether there is a head at all.",
            "`kubectl get pods`, and the log of the gateway's replica that does not start.",
        ),
        (
            "Undo the last change of values.",
            "Pending pods need nodes; a replica that starts again and again says why in its log.",
        ),
    ),
    Alert(
        "BatonApplicationUnhealthy",
        "warning",
        "5m",
        f"max by (namespace, job, application) ({select('ray_serve_application_status')}) < 3",
        "The application {{ $labels.application }} is unhealthy or failed to deploy" + _WHERE,
        "Ray Serve gives it status {{ $value }} (1 = deploy failed, 2 = unhealthy).",
        "baton-cluster",
        ("`serve status` on the head says why.", "The log of the replica that does not start."),
        ("Undo the last change; an engine that does not start tells in its log what it lacks.",),
    ),
    Alert(
        "BatonReplicasMissing",
        "warning",
        "15m",
        f"{total('ray_serve_deployment_replica_healthy', by=(*BY, 'application', 'deployment'))}\n"
        f"< max by (namespace, job, application, deployment) ({select('ray_serve_autoscaling_target_replicas')})\n"
        f"or max by (namespace, job, application, deployment) ({select('ray_serve_deployment_status')}) < 6",
        "Replicas of {{ $labels.deployment }} are missing" + _WHERE,
        "The deployment of {{ $labels.application }} has not had all its replicas for a quarter of an hour.",
        "baton-cluster",
        ("Cluster board: replicas wanted and healthy, replica starts.", "Pending pods: `kubectl get pods`."),
        ("Pending pods need nodes or GPUs; a replica that starts again and again says why in its log.",),
    ),
    Alert(
        "BatonAutoscalerStuck",
        "warning",
        "20m",
        f"sum by (namespace) ({of_objects('kube_pod_status_phase', *_PENDING)}) > 0",
        "Pods of the Ray cluster stay pending" + _WHERE,
        "{{ $value }} pods have waited for a node for twenty minutes.",
        "baton-cluster",
        ("`kubectl describe pod` of a pending one names what no node has.",),
        (
            "Grow the node pool, or lower the group's requests (which replaces the cluster).",
            "Lower the group's `maxReplicas` in values and RayCluster: it [does not follow](changes.md) them.",
        ),
        "kube-state-metrics",
    ),
    Alert(
        "BatonObjectStoreSpilling",
        "warning",
        "5m",
        total("ray_spill_manager_objects_bytes", 'State="Spilled"') + " > 0",
        "The object store spills to disk" + _WHERE,
        "{{ $value | humanize1024 }}B of objects lie on disk: hand-offs by reference take a hundred times as long.",
        "baton-cluster",
        ("Cluster board: object store by node.", "Pipeline board: hops by path; `inline` and store paths cost most."),
        ("Raise the group's object store (`objectStore`), or `pipeline.handoff.slots` so that less goes through it.",),
    ),
    Alert(
        "BatonGpuMemoryCreeping",
        "warning",
        "1h",
        f"deriv({select('ray_node_gram_used')}[6h]) * 3600\n"
        f"> {_GROWTH} * ({select('ray_node_gram_used')} + {select('ray_node_gram_available')})",
        "Memory of GPU {{ $labels.GpuIndex }} on {{ $labels.ip }} grows hour after hour" + _WHERE,
        "{{ $value | humanize }} MiB more each hour, over one percent of it; an engine takes its memory at the start.",
        "baton-cluster",
        ("Cluster board: GPU memory over a day.",),
        ("Restart the replica before it ends by itself; note engine version and features in use (LoRA, multimodal).",),
    ),
    Alert(
        "BatonCertificateExpires",
        "warning",
        "1h",
        f"min by (namespace, name) ({of_objects('certmanager_certificate_expiration_timestamp_seconds')})\n"
        "- time() < 14 * 86400",
        "The certificate {{ $labels.name }} expires within two weeks" + _WHERE,
        "cert-manager should have renewed it; {{ $value | humanizeDuration }} are left.",
        "baton-overview",
        ("`kubectl describe certificate <name>`.",),
        ("Mend the issuer that the certificate's events name.",),
        "cert-manager",
    ),
    Alert(
        "BatonKeyExpires",
        "warning",
        "1h",
        # 0 stands for no known end. A key whose end has passed stays: its users are refused since then.
        f"min by (namespace, job, key) ({select('ray_baton_key_expires_timestamp_seconds')} > 0) - time() < 14 * 86400",
        "The API key {{ $labels.key }} expires within two weeks" + _WHERE,
        "Nothing opens it after that, and its users get 401; {{ $value | humanizeDuration }} are left.",
        "baton-overview",
        (
            "`.venv/bin/python -m app.ops.keys list --file keys.yaml` shows when each key ends.",
            "Overview: days left of API keys.",
        ),
        (
            "Add a fresh secret to the key's `secrets` (`.venv/bin/python -m app.ops.keys new --id NAME` makes one), "
            "hand it to its users, and take the old one out when they have changed.",
            "A key that nobody needs: take it out of the file.",
        ),
    ),
    Alert(
        "BatonTargetDown",
        "warning",
        "5m",
        f"min by (namespace, job, instance) ({select('up')}) == 0",
        "The metrics of {{ $labels.instance }} cannot be read" + _WHERE,
        "A Ray pod does not answer on its metrics port; what runs there is not watched.",
        "baton-cluster",
        ("`kubectl get pods`; the pod's events.",),
        ("A pod that is gone takes its target along; one that stays is out of memory or cut off by a network policy.",),
    ),
    Alert(
        "BatonTargetAbsent",
        "critical",
        "10m",
        f"absent({select('up')})",
        "Nothing of Baton is scraped" + _WHERE,
        "No Ray pod of the release is a target of Prometheus: nothing else here can fire.",
        "baton-overview",
        ("The Service `<release>-metrics` and its endpoints.", "Prometheus: targets, and what its selectors match."),
        ("Set `observability.labels` to what your Prometheus selects, or `networkPolicy.metricsFrom`.",),
    ),
)

ALERTS: tuple[Alert, ...] = (*_burning(), *_PIPELINE, *_CLUSTER)
