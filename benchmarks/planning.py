"""How long a plan takes, from the small to the largest, in units of starting Python."""

import subprocess
import sys
from collections.abc import Callable

from timing import once

import fedro

CASES = {
    "150 clients, 10% bad": {"clients": 150, "byzantine": 15, "rounds": 500},
    "with dropouts": {"clients": 150, "byzantine": 15, "rounds": 500, "dropout": 0.1},
    "10⁹ clients, 10% bad": {"clients": 10**9, "byzantine": 10**8, "rounds": 10**6},
    "10⁹ clients, 40% bad, dropouts": {
        "clients": 10**9,
        "byzantine": 4 * 10**8,
        "rounds": 10**6,
        "dropout": 0.1,
    },
    "10⁹ clients, 49.9% bad": {"clients": 10**9, "byzantine": 499 * 10**6, "rounds": 10**6},
    "10⁹ clients, b̂/n̂ ≤ 0.3001 at 0.3": {
        "clients": 10**9,
        "byzantine": 3 * 10**8,
        "rounds": 10**6,
        "max_fraction": 0.3001,
    },
}


def best(action: Callable[[], object], times: int = 5) -> float:
    return min(once(action) for _ in range(times))


def process(*arguments: str) -> Callable[[], object]:
    return lambda: subprocess.run([sys.executable, *arguments], capture_output=True, check=True)


def main() -> None:
    unit = best(process("-c", "pass"))
    print(f"unit: starting Python, {1e3 * unit:.0f} ms\n")
    paper = ["--clients", "150", "--byzantine", "15", "--rounds", "500"]
    for name, arguments in (("fedro --help", ["--help"]), ("fedro plan", ["plan", *paper])):
        seconds = best(process("-m", "fedro", *arguments))
        print(f"{name:36} {1e3 * seconds:7.0f} ms {seconds / unit:7.1f} units")
    for name, ask in CASES.items():
        seconds = best(lambda ask=ask: fedro.plan(**ask), 3)
        print(f"{name:36} {1e3 * seconds:7.1f} ms {seconds / unit:7.2f} units")


if __name__ == "__main__":
    main()
