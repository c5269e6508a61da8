# SPDX-License-Identifier: BSD-3-Clause
"""Figures of a run: stored raw, one line of JSON each; medians and ratios are computed from
them."""

import json
import statistics
from collections import defaultdict
from pathlib import Path


class Figures:
    """`row` names what was measured, `who` the measured program, `round` the round."""

    def __init__(self, path=None):
        self.records = []
        self._file = None
        if path:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            self._file = open(path, "w", encoding="utf-8")

    @classmethod
    def read(cls, *paths):
        figures = cls()
        for path in paths:
            for line in Path(path).read_text(encoding="utf-8").splitlines():
                figures.records.append(json.loads(line))
        return figures

    def add(self, row, who, round_, **metrics):
        record = {"row": row, "who": who, "round": round_, **metrics}
        self.records.append(record)
        if self._file:
            print(json.dumps(record), file=self._file, flush=True)

    def rows(self):
        return list(dict.fromkeys(r["row"] for r in self.records if r["row"] != "header"))

    def whos(self, row):
        return list(dict.fromkeys(r["who"] for r in self.records if r["row"] == row))

    def headers(self):
        return [r for r in self.records if r["row"] == "header"]

    def values(self, row, who, metric):
        """{round: value}"""
        return {r["round"]: r[metric] for r in self.records
                if r["row"] == row and r["who"] == who and r.get(metric) is not None}

    def median(self, row, who, metric):
        values = self.values(row, who, metric)
        return statistics.median(values.values()) if values else None

    def spread(self, row, who, metric):
        """(median, minimum, maximum), or None"""
        values = self.values(row, who, metric).values()
        return (statistics.median(values), min(values), max(values)) if values else None

    def ratio(self, row, who, other, metric):
        """Ratio of `who` to `other` within each round: (median, minimum, maximum), or None."""
        mine, theirs = self.values(row, who, metric), self.values(row, other, metric)
        ratios = [mine[r] / theirs[r] for r in mine if theirs.get(r)]
        return (statistics.median(ratios), min(ratios), max(ratios)) if ratios else None


def number(value):
    """Short form with three significant digits."""
    if value is None:
        return "-"
    if value == 0:
        return "0"
    size = abs(value)
    if size >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if size >= 100 else f"{value:.1f}" if size >= 10 else f"{value:.2f}" if size >= 1 else f"{value:.3f}"


def ratio_text(ratio):
    return "-" if ratio is None else f"{ratio[0]:.2f} ({ratio[1]:.2f}-{ratio[2]:.2f})"


def by_row(figures, metric):
    """{row: {who: median}}"""
    table = defaultdict(dict)
    for row in figures.rows():
        for who in figures.whos(row):
            value = figures.median(row, who, metric)
            if value is not None:
                table[row][who] = value
    return dict(table)
