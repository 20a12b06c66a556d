"""The picture of the architecture page: rooms, what they import, and the way of a message through them.

python docs/architecture.py              # draw docs/assets/architecture.png
python docs/architecture.py other.png    # draw it there

Rooms and arrows come from the source, by the checker of the layer rule. The way is written below; the rooms that help
at a stop must be imported by the room of that stop, or nothing is drawn.
"""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.patches import Arc, FancyArrowPatch, FancyBboxPatch
from PIL import Image
from PIL.PngImagePlugin import PngInfo

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))
import layers

PICTURE = Path(__file__).parent / "assets" / "architecture.png"
INK, GREY, PALE = "#22303a", "#6d7b84", "#c3ccd1"
TEAL, TINT, AMBER = "#00796b", "#f0f7f6", "#fff8ec"
BOX, STEP, LEFT = 2.2, 1.9, -4.0
"""Width of a room, distance of two stops, where the widest arc ends; a lane has height 1."""
COLOURS = 96
BEGIN, TOP, BEND = BOX / 2 + 0.25 + STEP / 2, 3.0, 0.75
"""Where the first stop is, the height of the head, how much wider longer arcs are."""


class Stop(NamedTuple):
    """One stop of a message: the room, what is done there, who helps, and what goes on from here."""

    room: str
    verb: str
    says: str
    helpers: tuple[str, ...] = ()
    carries: str = ""


WAY = (
    Stop("data", "read", "each client\nits own file", (), "rows"),
    Stop("kinds", "check", "once, by what\nthe data are", (), "$X_j$"),
    Stop(
        "methods",
        "step",
        "solve; if asked,\nclip, add noise",
        ("local", "boolean", "ratings", "privacy"),
        "Message",
    ),
    Stop(
        "engines",
        "carry",
        "each one, or\nonly their sum",
        ("privacy",),
        "messages",
    ),
    Stop(
        "methods", "aggregate", "match, merge:\nthe next $H$", ("combine",), "$H$"
    ),
    Stop("engines", "run", "until the plan\nis carried out", ("plan",), "Run"),
    Stop(
        "jobs",
        "judge",
        "errors, costs,\npassports",
        ("kinds", "select", "assurance"),
        "scores",
    ),
    Stop("records", "write", "a folder of\ntyped records", (), "folder"),
    Stop("report", "show", "one page,\nno network"),
)
PLACES = (
    (0, 2, "at every client"),
    (3, 3, "between"),
    (4, 5, "at the server"),
    (6, 8, "afterwards"),
)
LOOP = (2, 4)
"""The stops that are repeated in every round."""


def facts() -> dict[str, list[str]]:
    """Return what the picture shows of the source: rooms in their order, and what each one imports."""
    graph = layers.graph()
    return {
        room: [r for r in graph if r in others] for room, others in graph.items()
    }


def needed(graph: dict[str, list[str]]) -> set[tuple[str, str]]:
    """Return the imports that do not follow from others: a > c is left out where a > b > c."""

    def reach(room: str) -> set[str]:
        return set(graph[room]).union(*(reach(other) for other in graph[room]))

    return {
        (room, other)
        for room, others in graph.items()
        for other in others
        if not any(other in reach(between) for between in others)
    }


def check(graph: dict[str, list[str]]) -> None:
    """Refuse a way that leads through rooms, or takes help, that the source does not have."""
    for stop in WAY:
        if stop.room not in graph:
            raise ValueError(
                f"the way leads through {stop.room!r}, which is no room"
            )
        for helper in set(stop.helpers) - set(graph[stop.room]):
            raise ValueError(f"{stop.room} does not import {helper!r}")


def draw(path: Path) -> dict[str, list[str]]:
    """Draw the picture, with what it shows in its description; return that."""
    graph = facts()
    check(graph)
    lanes = {room: -float(i) for i, room in enumerate(graph)}
    end = _x(len(WAY) - 1) + STEP / 2
    figure, axes = plt.subplots(figsize=(12.6, 9.3), dpi=150)
    axes.set_xlim(LEFT, end)
    axes.set_ylim(-len(lanes) - 0.55, TOP + 0.35)
    axes.set_axis_off()
    _places(axes, len(lanes))
    _rooms(axes, lanes, end)
    _imports(axes, graph, lanes)
    _way(axes, lanes)
    _legend(axes, -len(lanes) - 0.15)
    figure.subplots_adjust(0.005, 0.005, 0.995, 0.995)
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png")
    plt.close(figure)
    says = PngInfo()
    says.add_text("Description", json.dumps(graph))
    few = Image.open(drawn).convert("RGB").quantize(COLOURS)
    few.save(path, optimize=True, pnginfo=says)
    return graph


def shown(path: Path = PICTURE) -> dict[str, list[str]]:
    """Return what a picture says it shows."""
    with Image.open(path) as picture:
        return json.loads(picture.info["Description"])


def _x(stop: int) -> float:
    return BEGIN + STEP * stop


def _say(axes: Any, x: float, y: float, text: str, **style: Any) -> None:
    axes.text(x, y, text, **{"ha": "center", "va": "center", "color": INK, **style})


def _box(
    axes: Any, x: float, y: float, width: float, height: float, **style: Any
) -> None:
    shape = "round,pad=0,rounding_size=.16"
    axes.add_patch(FancyBboxPatch((x, y), width, height, boxstyle=shape, **style))


def _places(axes: Any, count: int) -> None:
    """Say over the stops where they happen."""
    head = {"color": GREY, "fontsize": 10.5, "style": "italic"}
    for first, last, name in PLACES:
        left, width = _x(first) - STEP / 2 + 0.05, STEP * (last - first + 1) - 0.1
        tint = AMBER if first == last else TINT
        _box(axes, left, 0.5 - count, width, count + TOP - 0.85, color=tint, lw=0)
        _say(axes, left + width / 2, TOP, name, **head)
    _say(axes, 0, TOP, "rooms", **head)
    _say(axes, -BOX / 2 - 0.3, TOP, "imports", ha="right", **head)


def _rooms(axes: Any, lanes: dict[str, float], end: float) -> None:
    """Draw a box and a lane for each room, stronger where the message passes."""
    passed = {stop.room for stop in WAY}
    for room, y in lanes.items():
        here = room in passed
        face, edge, ink = (TEAL, TEAL, "white") if here else ("white", PALE, INK)
        axes.plot([BOX / 2, end - 0.05], [y, y], color=PALE, lw=0.5, zorder=1)
        _box(
            axes, -BOX / 2, y - 0.36, BOX, 0.72, fc=face, ec=edge, lw=1.1, zorder=4
        )
        weight = "bold" if here else "normal"
        _say(
            axes, 0, y - 0.02, room, color=ink, fontsize=11, weight=weight, zorder=5
        )


def _imports(
    axes: Any, graph: dict[str, list[str]], lanes: dict[str, float]
) -> None:
    """Draw an arc from each room up to those it imports, lighter where it follows from others."""
    strong, room_left = needed(graph), -BOX / 2
    reach = (room_left - LEFT - 0.1) / (len(lanes) - 1) ** BEND
    for room, others in graph.items():
        for other in others:
            a, b = lanes[room], lanes[other]
            size = (2 * reach * abs(b - a) ** BEND, abs(b - a))
            must = (room, other) in strong
            line = (
                {"color": GREY, "lw": 1.0, "zorder": 3}
                if must
                else {"color": PALE, "lw": 0.6, "zorder": 2}
            )
            axes.add_patch(
                Arc((room_left, (a + b) / 2), *size, theta1=90, theta2=270, **line)
            )
    for other in {other for others in graph.values() for other in others}:
        axes.plot(room_left - 0.06, lanes[other], ">", ms=5, color=GREY, zorder=6)


def _way(axes: Any, lanes: dict[str, float]) -> None:
    """Draw the stops, what goes from one to the next, who helps, and the way back of every round."""
    for i, stop in enumerate(WAY):
        x, y = _x(i), lanes[stop.room]
        _say(axes, x, TOP - 0.85, stop.verb, color=TEAL, fontsize=12, weight="bold")
        _say(axes, x, TOP - 1.25, stop.says, va="top", fontsize=9)
        for helper in stop.helpers:
            axes.plot([x, x], [y, lanes[helper]], color=TEAL, lw=0.8, zorder=3)
            axes.plot(x, lanes[helper], "o", ms=6, mfc="white", mec=TEAL, zorder=5)
        axes.plot(x, y, "o", ms=19, color=TEAL, zorder=7)
        number = {"color": "white", "fontsize": 11, "weight": "bold", "zorder": 8}
        _say(axes, x, y - 0.02, str(i + 1), **number)
        if i + 1 < len(WAY):
            after = (_x(i + 1), lanes[WAY[i + 1].room])
            _hop(axes, (x, y), after, stop.carries, lw=2.6)
    first, last = LOOP
    y = lanes[WAY[first].room]
    back = {"connectionstyle": "arc3,rad=.25", "ls": (0, (4, 2)), "lw": 1.6}
    _hop(axes, (_x(last), y), (_x(first), y), "", **back)
    _label(axes, (_x(first) + _x(last)) / 2, y + 1.02, "$H$, every round")


def _hop(
    axes: Any,
    start: tuple[float, float],
    end: tuple[float, float],
    carries: str,
    **style: Any,
) -> None:
    """Draw the way from one stop to the next, and what travels on it."""
    head = "-|>,head_length=7,head_width=3.5"
    ends = {"shrinkA": 11, "shrinkB": 11, "zorder": 6}
    axes.add_patch(
        FancyArrowPatch(start, end, arrowstyle=head, color=TEAL, **ends, **style)
    )
    if carries:
        flat = abs(end[1] - start[1]) < 1.5  # there a label would hide the arrow
        x, y = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2
        _label(axes, x, y + 0.6 * flat, carries)


def _label(axes: Any, x: float, y: float, text: str) -> None:
    paper = {"boxstyle": "round,pad=.18", "fc": "white", "ec": "none", "alpha": 0.9}
    _say(axes, x, y, text, color=TEAL, fontsize=9.5, zorder=9, bbox=paper)


def _legend(axes: Any, y: float) -> None:
    """Say what dots and arcs mean."""
    small = {"ha": "left", "color": GREY, "fontsize": 9}
    x = _x(0) - STEP / 2 + 0.15
    axes.plot(x, y, "o", ms=6, mfc="white", mec=TEAL)
    _say(axes, x + 0.22, y, "a room that helps at this stop", **small)
    for left, color, words in (
        (x + 4.0, GREY, "imports that others do not bring along"),
        (x + 9.6, PALE, "imports that others bring along too"),
    ):
        axes.plot([left, left + 0.5], [y, y], color=color, lw=1.2)
        _say(axes, left + 0.65, y, words, **small)


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE)
