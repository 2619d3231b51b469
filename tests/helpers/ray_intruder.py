"""Try to run code in a Ray that somebody else has started: python ray_intruder.py ADDRESS."""

import os
import sys

# Ray tries twenty times by default, and would ask this machine for another address.
os.environ |= {"RAY_NUM_REDIS_GET_RETRIES": "2", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}

import ray


def main():
    ray.init(address=sys.argv[1], log_to_driver=False)
    assert ray.get(ray.put(7)) == 7
    print("connected", ray.nodes()[0]["NodeID"])


if __name__ == "__main__":
    main()
