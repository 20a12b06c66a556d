"""Figures in the layout of a paper: panels of lines over a setting, curves, bars, or pictures of components."""

from __future__ import annotations

import base64
import textwrap
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from cofactor.reproduce.experiment import Experiment, Settings, chosen
from cofactor.reproduce.written import values

INK, MUTED, RULE = "#22303c", "#5b6b78", "#c9d3da"
OURS = ("#0f766e", "#14b8a6", "#115e59", "#5eead4")
OTHERS = ("#b45309", "#7c3aed", "#be123c", "#1d4ed8", "#65a30d", "#a16207", "#db2777", "#64748b", "#0891b2", "#92400e")
MARKS = "os^Dv<>Ph*"
PRINTED = "as the paper prints it"
FEW = 8
"""Settings that an axis names one by one."""
NARROW, LONG = 4.0, 10**2.5
"""Last over first value of a logarithmic axis: below it has round numbers, above only decades."""
WIDE, TALL = 3.5, 2.75
"""Inches of one panel."""


def draw(path: Path, experiment: Experiment, lines: Sequence[Settings]) -> Path | None:
    """Draw the panels of an experiment; None where there are none, or nothing was measured."""
    lines = [line for line in lines if not line.get("error")]
    panels = [p for p in experiment.panels if _of(lines, p)]
    if not panels:
        return None
    across = min(experiment.layout.get("columns", 3), len(panels))
    down = -(-len(panels) // across)
    wide, tall = experiment.layout.get("panel", [WIDE, TALL])
    figure = Figure(figsize=(wide * across, tall * down + 0.75), facecolor="white", layout="constrained")
    axes = np.atleast_1d(figure.subplots(down, across)).ravel()
    keys: dict[str, Any] = {}
    methods = {experiment.label(name) for name in experiment.methods}
    for axis, panel in zip(axes, panels):
        here = _of(lines, panel)
        found = KINDS[panel.get("kind", "lines")](axis, experiment, panel, here)
        _finish(axis, panel, here)
        own = {} if panel.get("lines", "method") == "method" else {w: k for w, k in found.items() if w not in methods}
        keys |= {word: key for word, key in found.items() if word not in own}
        if own:  # what is not a method means something in this panel only
            axis.legend(own.values(), own.keys(), frameon=False, fontsize=7, handlelength=1.6, labelcolor=MUTED)
    if PRINTED in keys:
        keys[PRINTED] = keys.pop(PRINTED)
    for axis in axes[len(panels) :]:
        axis.set_axis_off()
    title = "\n".join(textwrap.wrap(experiment.title, int(10.7 * wide * across)))
    figure.suptitle(title, x=0.01, ha="left", color=INK, size=11, weight="bold")
    if keys:
        columns = max(1, min(len(keys), int(across * wide / (0.062 * max(map(len, keys)) + 0.6))))
        how: dict[str, Any] = {"frameon": False, "fontsize": 8, "handlelength": 1.8}
        figure.legend(keys.values(), keys.keys(), loc="outside lower left", ncols=columns, **how)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})
    return path


def _of(lines: Sequence[Settings], panel: Settings) -> list[Settings]:
    """Return the lines of a panel: those of ``also``, which several panels may share, and of its ``where``."""
    return [*(chosen(lines, panel["also"]) if "also" in panel else []), *chosen(lines, panel.get("where", {}))]


def _finish(axis: Axes, panel: Settings, lines: Sequence[Settings]) -> None:
    axis.set_title(panel.get("title", ""), size=9, color=INK, loc="left")
    if panel.get("kind") == "pictures":
        return
    log = panel.get("log", "")
    if "x" in log:
        axis.set_xscale("log")
    if "y" in log:
        axis.set_yscale("log")
    unsaid = "" if panel.get("kind") == "bars" else panel["x"]
    axis.set_xlabel(str(panel.get("x_label", unsaid)), size=8, color=MUTED)
    axis.set_ylabel(str(panel.get("y_label", panel["y"])), size=8, color=MUTED)
    axis.tick_params(which="both", labelsize=7.5, colors=MUTED)
    for line, scale in ((axis.xaxis, "x"), (axis.yaxis, "y")):
        if scale in log and (scale == "y" or panel.get("kind") != "bars"):
            _plain_ticks(line)
    if "x" not in log and panel.get("kind") == "curves" and _counts(panel["x"], lines):
        axis.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axis.spines[["top", "right"]].set_visible(False)
    for side in ("left", "bottom"):
        axis.spines[side].set_color(RULE)
    if "y_limits" in panel:
        axis.set_ylim(*panel["y_limits"])
    if "x_limits" in panel:
        axis.set_xlim(*panel["x_limits"])
    at = sorted({line["cell"][panel["x"]] for line in lines if panel["x"] in line["cell"]})
    if "x" in log and panel.get("kind", "lines") == "lines" and len(at) <= FEW:  # few settings are their own ticks
        axis.set_xticks(at, [f"{t:g}" for t in at], minor=False)
        axis.xaxis.set_minor_locator(NullLocator())
    for rule in panel.get("rules", []):
        axis.axhline(rule["at"], color=MUTED, linewidth=0.8, linestyle=":")
        how: dict[str, Any] = {"ha": "right", "va": "bottom", "size": 7, "color": MUTED}
        axis.annotate(rule["text"], (1, rule["at"]), xycoords=("axes fraction", "data"), **how)


def _counts(name: str, lines: Sequence[Settings]) -> bool:
    """Whether what curves are drawn over is counted: rounds or iterations, of which there are no halves."""
    return all(isinstance(x, int) for line in lines for x in line["result"].get(name, []))


def _plain_ticks(axis: Any) -> None:
    """Label a logarithmic axis with plain numbers: round ones, 1, 2, 5 of each decade, or decades, by its length."""
    low, high = axis.get_view_interval()
    if high / low < NARROW:
        axis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
        axis.set_minor_locator(NullLocator())
    else:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < LONG else (1,), numticks=12))
        axis.set_minor_locator(LogLocator(subs=range(1, 10), numticks=60))
    axis.set_major_formatter(FuncFormatter(lambda value, _: _plain(value)))
    axis.set_minor_formatter(NullFormatter())


def _plain(value: float) -> str:
    """Write the number of a tick: plainly, or as a power of ten where that would be long.

    >>> _plain(0.05), _plain(1e11)
    ('0.05', '$10^{11}$')
    """
    power = round(np.log10(value)) if value > 0 else 0
    return f"$10^{{{power}}}$" if abs(power) > 4 and np.isclose(value, 10.0**power, rtol=1e-6) else f"{value:g}"


def look(experiment: Experiment, name: Any) -> dict[str, Any]:
    """Return colour, mark and width of a line: the same for one method in all panels; ours are teal and thick."""
    known = list(experiment.methods) or [name]
    mine = [n for n in known if experiment.ours(n)]
    if name in mine:
        tone, width, style = OURS[mine.index(name) % len(OURS)], 2.2, "-"
    elif experiment.methods.get(name, {}).get("bound"):
        bounds = [n for n in known if experiment.methods[n].get("bound")]
        tone, width, style = (MUTED, "#a3b1bc", INK)[bounds.index(name) % 3], 1.2, "--"
    else:
        others = [n for n in known if n not in mine]
        at = others.index(name) if name in others else 0
        tone, width, style = OTHERS[at % len(OTHERS)], 1.4, "-"
    mark = MARKS[known.index(name) % len(MARKS)] if name in known else "o"
    over = 2.0 if name in mine else 2.5  # thin lines stay visible on thick ones
    return {"color": tone, "linewidth": width, "linestyle": style, "marker": mark, "markersize": 3.8, "zorder": over}


def _names(panel: Settings, lines: Sequence[Settings]) -> list[Any]:
    split = panel.get("lines", "method")
    found = list(dict.fromkeys(line["cell"].get(split) for line in lines))
    return sorted(found) if all(isinstance(name, int | float) for name in found) else found


Style = tuple[Any, str, dict[str, Any]]


def _styles(experiment: Experiment, panel: Settings, lines: Sequence[Settings]) -> list[Style]:
    """Return value, label and look of every line of a panel; lines that are not of methods take colours in order."""
    split = panel.get("lines", "method")
    found = []
    for i, name in enumerate(_names(panel, lines)):
        style = look(experiment, name)
        if split != "method" and not experiment.ours(name):
            style |= {"color": OTHERS[i % len(OTHERS)], "marker": MARKS[i % len(MARKS)], "linestyle": "-"}
        word = panel.get("line_label", "{}").format(experiment.label(name))
        found.append((name, word, style))
    return found


def _at(line: Settings, name: str) -> Any:
    """Return where on the axis a cell stands: one of its settings, or something it measured; None where it has none."""
    return line["cell"].get(name, line["result"].get(name))


def _lines(axis: Axes, experiment: Experiment, panel: Settings, lines: Sequence[Settings]) -> dict[str, Any]:
    """Draw medians over seeds against a numeric setting, with a band from the least to the largest."""
    keys: dict[str, Any] = {}
    for name, word, style in _styles(experiment, panel, lines):
        mine = chosen(lines, {panel.get("lines", "method"): name})
        xs = sorted({x for line in mine if (x := _at(line, panel["x"])) is not None})
        found = [values([line for line in mine if _at(line, panel["x"]) == x], panel["y"]) for x in xs]
        if not xs and (level := values(mine, panel["y"])):  # a method that does not depend on x is a level
            keys[word] = axis.axhline(median(level), **{**style, "marker": None})
            continue
        points = [(x, f) for x, f in zip(xs, found) if f and max(f) < float("inf")]
        if points:
            at = [x for x, _ in points]
            low, high = ([f(seeds) for _, seeds in points] for f in (min, max))
            axis.fill_between(at, low, high, color=style["color"], alpha=0.12, linewidth=0)
            (keys[word],) = axis.plot(at, [median(f) for _, f in points], **style)
    return keys


def _curves(axis: Axes, experiment: Experiment, panel: Settings, lines: Sequence[Settings]) -> dict[str, Any]:
    """Draw what cells measured as lists, one thin line for each seed, the first one full."""
    keys: dict[str, Any] = {}
    for name, word, style in _styles(experiment, panel, lines):
        mine = [line for line in chosen(lines, {panel.get("lines", "method"): name}) if panel["y"] in line["result"]]
        for i, line in enumerate(mine):
            x, y = line["result"][panel["x"]], line["result"][panel["y"]]
            few: dict[str, Any] = {} if len(x) <= 12 else {"markevery": 0.12}
            (drawn,) = axis.plot(x, y, **{**style, "alpha": 1.0 if i == 0 else 0.3}, **few)
            keys.setdefault(word, drawn)
    return keys


def _bars(axis: Axes, experiment: Experiment, panel: Settings, lines: Sequence[Settings]) -> dict[str, Any]:
    """Draw a bar for each value of a setting and each line; the paper's number, where it is given, is a ring."""
    keys: dict[str, Any] = {}
    split = panel.get("lines", "method")
    groups = list(dict.fromkeys(line["cell"][panel["x"]] for line in lines))
    styles = _styles(experiment, panel, lines)
    width = 0.8 / len(styles)
    for i, (name, word, style) in enumerate(styles):
        found = [values(chosen(lines, {split: name, panel["x"]: g}), panel["y"]) for g in groups]
        at = [g + (i - (len(styles) - 1) / 2) * width for g in range(len(groups))]
        heights = [median(f) if f else 0 for f in found]
        keys[word] = axis.bar(at, heights, 0.92 * width, color=style["color"])
        for x, group in zip(at, groups):
            told = panel.get("paper", {}).get(str(name), {}).get(str(group))
            if told is not None:
                (keys[PRINTED],) = axis.plot(x, told, "o", mfc="white", mec=INK, ms=4.5, mew=1)
    axis.set_xticks(range(len(groups)), [experiment.label(g) for g in groups])
    return keys


def _pictures(axis: Axes, experiment: Experiment, panel: Settings, lines: Sequence[Settings]) -> dict[str, Any]:
    """Draw the pictures of the first cell, side by side."""
    found = lines[0]["result"][panel["y"]]
    count, height, width = found["shape"]
    images = np.frombuffer(base64.b64decode(found["pixels"]), np.uint8).reshape(count, height, width)
    across = panel.get("across", -(-count // 2))
    down = -(-count // across)
    sheet = np.full((down * (height + 1) + 1, across * (width + 1) + 1), 255, np.uint8)
    for i, image in enumerate(images):
        y, x = (i // across) * (height + 1) + 1, (i % across) * (width + 1) + 1
        sheet[y : y + height, x : x + width] = image
    axis.imshow(sheet, cmap=panel.get("colours", "gray"), vmin=0, vmax=255, interpolation="nearest")
    axis.set_axis_off()
    return {}


KINDS = {"lines": _lines, "curves": _curves, "bars": _bars, "pictures": _pictures}


def pictures(images: Any) -> dict[str, Any]:
    """Return pictures (count x height x width) as a result to write down, each from its own least to its most."""
    low = images.min(axis=(1, 2), keepdims=True)
    span = np.maximum(images.max(axis=(1, 2), keepdims=True) - low, 1e-12)
    bits = np.rint(255 * (images - low) / span).astype(np.uint8)
    return {"shape": list(bits.shape), "pixels": base64.b64encode(bits.tobytes()).decode()}
