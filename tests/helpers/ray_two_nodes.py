"""Two Ray nodes on this machine: prints their address and the second raylet's process id.

They end with the input of this process.
"""

import sys

from ray.cluster_utils import Cluster


def main():
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    second = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    print(cluster.address, second.all_processes["raylet"][0].process.pid, flush=True)
    sys.stdin.read()
    cluster.shutdown()


if __name__ == "__main__":
    main()
