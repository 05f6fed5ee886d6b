"""The GPUs of a Ray cluster as the place of a run's GPU work."""

from flashcore.model.plugin import Plugin

PLUGIN = Plugin(
    name="cluster",
    executors={"cluster": "flashcore_cluster.cluster:Cluster"},
    help={"--cluster": "the GPUs of a Ray cluster: auto, or host:port (default: this host's)"},
)
