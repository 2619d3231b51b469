"""Aggregate 20 GB of updates on disk with little memory: python benchmarks/memory.py [GB]."""

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from rich.progress import Progress

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/helpers"))
from fedro.rules import parse_rule
from memory import peak_extra

MEGABYTE = 1e6


def main() -> None:
    rows = 101
    columns = int(float(sys.argv[1] if len(sys.argv) > 1 else 20) * 1e9 / 4 / rows)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "updates.bin"
        updates = np.memmap(path, dtype=np.float32, mode="w+", shape=(rows, columns))
        updates[:, :: columns // 50] = np.random.default_rng(0).standard_normal((rows, 1))
        print(f"{updates.nbytes / 1e9:.1f} GB, {rows} rows, {columns:,} columns (a sparse file)")
        for text in ("trimmed_mean", "krum"):
            with Progress() as bar:
                task = bar.add_task(text, total=columns)
                rule, start = parse_rule(text, b=40), time.perf_counter()
                extra = peak_extra(
                    lambda rule=rule, bar=bar, task=task: rule(
                        updates, progress=lambda columns, _: bar.update(task, completed=columns)
                    )
                )
            seconds = time.perf_counter() - start
            print(f"{text}: {seconds:.0f} s, at most {extra / MEGABYTE:.0f} MB more RssAnon")


if __name__ == "__main__":
    main()
