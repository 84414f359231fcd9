"""Flags of `vllm serve` that mean nothing to a renderer, or nothing yet: accepted with a warning.

Names and arities are those of vLLM 0.33's parser. A switch is listed by its stem: `enable-`,
`disable-` and `no-` before it are understood.
"""

import enum
import re


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ENGINE_SWITCHES = _words(
    """
    aggregate-engine-logging allow-deprecated-quantization async-scheduling
    batch-sharded-sampling cascade-attn chunked-prefill cohere-is-reasoning-model
    cudagraph-metrics cumem-allocator custom-all-reduce data-parallel-external-lb
    data-parallel-hybrid-lb data-parallel-multi-port-external-lb dbo dcp-q-replicate elastic-ep
    enforce-eager ep-weight-filter eplb expert-parallel fail-on-environ-validation
    fault-tolerance flash-late-interaction flashinfer-autotune force-include-usage
    fully-sharded-loras grpc hc-sp headless hybrid-kv-cache-manager jit-monitor-verbose
    kv-cache-metrics kv-sharing-fast-prefill layerwise-nvtx-tracing log-deltas log-error-stack
    log-outputs log-requests log-stats logging-iteration-details
    long-prefill-token-threshold-adaptive lora mamba-cache-stochastic-rounding
    mamba-shared-prefix-checkpoint mfu-metrics mixed-moe-lora-format moe-shared-loras monokernel
    nccl-comm-suspend nccl-for-dp-synchronization numa-bind offline-docs per-request-metrics
    prefix-caching prompt-tokens-details ray-workers-use-nsight return-routed-experts
    return-sampling-mask return-tokens-as-token-ids scheduler-reserve-full-isl
    server-load-tracking shm-tensor-arena skip-tokenizer-init sleep-mode
    sleep-mode-offload-cudagraph sliding-window specialize-active-lora swa-bounded-replay
    tower-connector-lora trace-replay trust-remote-code use-fp64-gumbel
    use-replayssm use-tqdm-on-load
    """
)
_ENGINE_VALUES = _words(
    """
    additional-config all2all-backend anthropic-disabled-thinking-effort api-server-count
    attention-backend attention-config aux-output-config block-size code-revision
    compilation-config config-format convert cp-kv-cache-interleave-size
    cpu-distributed-timeout-seconds cpu-offload-gb custom-histogram-buckets
    data-parallel-address data-parallel-backend data-parallel-rank data-parallel-rpc-port
    data-parallel-size data-parallel-size-local data-parallel-start-rank
    data-parallel-supervisor-port dbo-decode-token-threshold dbo-prefill-token-threshold
    dcp-comm-backend dcp-kv-cache-interleave-size decode-context-parallel-size default-mm-loras
    device-ids device-memory-utilization diffusion-config distributed-executor-backend
    distributed-timeout-seconds dp-supervisor-probe-failure-threshold
    dp-supervisor-probe-interval-s dp-supervisor-probe-timeout-s dp-sync-interval
    ec-manager-config ec-transfer-config elastic-ep-max-dp-size engram-config eplb-config
    expert-placement-strategy fault-tolerance-config fingerprint-mode fingerprint-value
    gdn-prefill-backend gpu-memory-utilization grpc-port h11-max-header-count
    h11-max-incomplete-event-size hf-config-path io-processor-plugin ir-op-priority
    jit-monitor-mode kda-decode-backend kda-prefill-backend kernel-config kv-cache-dtype
    kv-cache-memory-bytes kv-cache-metrics-sample kv-events-config kv-offloading-backend
    kv-offloading-size kv-transfer-config linear-backend load-format log-config-file log-level
    logging-config logprobs-mode long-prefill-token-threshold lora-dtype mamba-backend
    mamba-block-size mamba-cache-dtype mamba-cache-mode mamba-cache-philox-rounds
    mamba-ssm-cache-dtype mamba-ssu-algorithm master-addr master-port max-cpu-loras
    max-cudagraph-capture-size max-log-len max-lora-cls-labels max-lora-rank
    max-loras max-num-active-seqs max-num-queued-reqs
    max-num-queued-tokens max-num-scheduled-tokens max-parallel-loading-workers
    model-class-overrides model-impl model-loader-extra-config moe-backend nnodes node-rank
    num-gpu-blocks-override offload-backend offload-group-size offload-num-in-group
    offload-prefetch-step optimization-level otlp-traces-endpoint
    per-request-spec-decode-metrics performance-mode pipeline-parallel-size pooler-config
    prefill-context-parallel-size prefill-schedule-interval prefix-cache-retention-interval
    prefix-caching-hash-algo prefix-match-unit profiler-config pt-load-map-location quantization
    quantization-config reasoning-config reasoning-parser-plugin replayssm-buffer-len
    response-role runner safetensors-load-strategy safetensors-prefetch-block-size
    safetensors-prefetch-num-threads scheduler-cls scheduling-policy seed
    show-hidden-metrics-for-version sleep-mode-backend sparse-indexer-topk-backend spec-method
    spec-model spec-tokens speculative-config sse-keep-alive-interval stream-interval
    structured-outputs-config tensor-parallel-size tool-parser-plugin tool-server
    ubatch-size watchdog-config watermark watermark-config
    weight-transfer-config worker-cls worker-extension-cls
    """
)
_LISTS = _words(
    """
    collect-detailed-traces cpu-offload-params cudagraph-capture-sizes ignore-patterns
    kv-cache-dtype-skip-layers logits-processors lora-modules lora-target-modules numa-bind-cpus
    numa-bind-nodes offload-params sleep-preserve-parameter-names
    """
)
_MEDIA_SWITCHES = _words(
    """
    chunked-mm-input language-model-only mm-embeds mm-encoder-only
    prompt-embeds skip-mm-profiling
    """
)
_MEDIA_VALUES = _words(
    """
    mm-encoder-attn-backend mm-encoder-attn-dtype
    mm-encoder-fp8-scale-path mm-encoder-fp8-scale-save-margin mm-encoder-fp8-scale-save-path
    mm-encoder-tp-mode mm-ipc-gpu-memory-gb
    mm-processor-cache-type mm-processor-device
    mm-shm-cache-max-object-size-mb mm-tensor-ipc video-pruning-method video-pruning-rate
    """
)
_SHORT = {
    "-ac": "attention-config",
    "-asc": "api-server-count",
    "-cc": "compilation-config",
    "-dc": "diffusion-config",
    "-dcp": "decode-context-parallel-size",
    "-dp": "data-parallel-size",
    "-dpa": "data-parallel-address",
    "-dpb": "data-parallel-backend",
    "-dpe": "data-parallel-external-lb",
    "-dph": "data-parallel-hybrid-lb",
    "-dpl": "data-parallel-size-local",
    "-dpm": "data-parallel-multi-port-external-lb",
    "-dpn": "data-parallel-rank",
    "-dpp": "data-parallel-rpc-port",
    "-dpr": "data-parallel-start-rank",
    "-ep": "enable-expert-parallel",
    "-n": "nnodes",
    "-pcp": "prefill-context-parallel-size",
    "-pp": "pipeline-parallel-size",
    "-q": "quantization",
    "-r": "node-rank",
    "-sc": "speculative-config",
    "-tp": "tensor-parallel-size",
}
_SWITCHES = _ENGINE_SWITCHES | _MEDIA_SWITCHES
_VALUES = _ENGINE_VALUES | _MEDIA_VALUES
_MEDIA = _MEDIA_SWITCHES | _MEDIA_VALUES


class Arity(enum.Enum):
    """How many words follow a flag."""

    NONE = enum.auto()
    ONE = enum.auto()
    MANY = enum.auto()


def arity_of(flag: str) -> Arity | None:
    """How many words follow `flag`, or None if it is not in the tables."""
    name = _name(flag)
    if name in _VALUES:
        return Arity.ONE
    if name in _LISTS:
        return Arity.MANY
    return Arity.NONE if _stem(name) in _SWITCHES else None


def warning(flag: str) -> str:
    """What to tell the person who gave `flag`."""
    name = _name(flag)
    if name in _MEDIA or _stem(name) in _MEDIA:
        return f"{flag} has no effect yet: text alone is rendered"
    return f"{flag} has no effect on a renderer"


def known_flags() -> list[str]:
    """The flags of the tables, for suggestions."""
    return [f"--{name}" for name in _VALUES | _LISTS | _SWITCHES]


def _name(flag: str) -> str:
    return _SHORT.get(flag, flag.removeprefix("--"))


def _stem(name: str) -> str:
    return re.sub(r"^(no-)?(enable-|disable-)?", "", name)
