"""The diagrams of the pages, as data: ``python deploy/site/diagrams.py`` writes them to ``docs/images``.

A diagram is a list of shapes on a grid; no browser, font or JavaScript is needed to draw it. A test checks
that the files are what this script writes (``make gen``).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from pathlib import Path

IMAGES = Path(__file__).parents[2] / "docs" / "images"
FILLS = {"store": "#fff3d6", "process": "#dfeeff", "memory": "#e3f6e3", "file": "#ffffff", "gone": "#eeeeee"}
STYLE = (
    "text{font-family:Helvetica,Arial,sans-serif;font-size:13px;fill:#222}"
    ".label{font-size:12px;fill:#444}rect{stroke:#555;stroke-width:1.2}"
    "line{stroke:#555;stroke-width:1.4}.dashed{stroke-dasharray:5 4}"
)
MARKER = (
    '<defs><marker id="head" markerWidth="9" markerHeight="9" refX="8" refY="4" orient="auto">'
    '<path d="M0,0 L9,4 L0,8 z" fill="#555"/></marker></defs>'
)


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle with lines of text in its middle; ``|`` separates the lines."""

    x: int
    y: int
    width: int
    height: int
    text: str
    kind: str = "file"
    is_dashed: bool = False

    def svg(self) -> str:
        """Return the SVG elements of the box."""
        lines = self.text.split("|")
        top = self.y + self.height / 2 - (len(lines) - 1) * 8.5 + 4.5
        middle = self.x + self.width / 2
        dashed = ' class="dashed"' if self.is_dashed else ""
        texts = "".join(
            f'<text x="{middle:g}" y="{top + 17 * number:g}" text-anchor="middle">{escape(line)}</text>'
            for number, line in enumerate(lines)
        )
        return (
            f'<rect x="{self.x}" y="{self.y}" width="{self.width}" height="{self.height}" rx="5" '
            f'fill="{FILLS[self.kind]}"{dashed}/>{texts}'
        )


@dataclass(frozen=True, slots=True)
class Group:
    """A large rectangle with its title at the top left."""

    x: int
    y: int
    width: int
    height: int
    title: str
    kind: str = "store"

    def svg(self) -> str:
        """Return the SVG elements of the group."""
        return (
            f'<rect x="{self.x}" y="{self.y}" width="{self.width}" height="{self.height}" rx="8" '
            f'fill="{FILLS[self.kind]}"/><text x="{self.x + 10}" y="{self.y + 19}">{escape(self.title)}</text>'
        )


@dataclass(frozen=True, slots=True)
class Arrow:
    """A line with a head, and a label above its middle."""

    x1: int
    y1: int
    x2: int
    y2: int
    label: str = ""
    is_dashed: bool = False

    def svg(self) -> str:
        """Return the SVG elements of the arrow."""
        dashed = ' class="dashed"' if self.is_dashed else ""
        line = f'<line x1="{self.x1}" y1="{self.y1}" x2="{self.x2}" y2="{self.y2}" marker-end="url(#head)"{dashed}/>'
        x, y = (self.x1 + self.x2) / 2, (self.y1 + self.y2) / 2
        if self.x1 == self.x2:
            return line + f'<text class="label" x="{x + 6:g}" y="{y + 4:g}">{escape(self.label)}</text>'
        return line + f'<text class="label" x="{x:g}" y="{y - 6:g}" text-anchor="middle">{escape(self.label)}</text>'


@dataclass(frozen=True, slots=True)
class Note:
    """Text without a frame, from ``x`` to the right."""

    x: int
    y: int
    text: str

    def svg(self) -> str:
        """Return the SVG element of the text."""
        return f'<text class="label" x="{self.x}" y="{self.y}">{escape(self.text)}</text>'


Shape = Box | Group | Arrow | Note


@dataclass(frozen=True, slots=True)
class Diagram:
    """Shapes on a canvas, and the sentence that says what they show."""

    width: int
    height: int
    title: str
    shapes: tuple[Shape, ...]

    def svg(self) -> str:
        """Return the file."""
        body = "\n".join(shape.svg() for shape in self.shapes)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" role="img">\n'
            f"<title>{escape(self.title)}</title><style>{STYLE}</style>{MARKER}\n"
            f'<rect width="{self.width}" height="{self.height}" fill="#fff" style="stroke:none"/>\n{body}\n</svg>\n'
        )


def row(x: int, y: int, names: Iterable[str], *, width: int = 74, kind: str = "file") -> tuple[Box, ...]:
    """Return boxes beside one another."""
    return tuple(Box(x + place * (width + 8), y, width, 30, name, kind) for place, name in enumerate(names))


def sequence(names: tuple[str, ...], steps: Iterable[tuple[int, int, str]], *, gap: int = 250) -> tuple[Shape, ...]:
    """Return a sequence diagram: lifelines from left to right, one message per line."""
    steps = list(steps)
    bottom = 70 + 38 * len(steps)
    shapes: list[Shape] = []
    for place, name in enumerate(names):
        x = 90 + place * gap
        shapes.append(Box(x - 75, 12, 150, 34, name, "store" if "store" in name else "process"))
        shapes += [Box(x - 1, 46, 2, bottom - 40, "", "gone")]
    for number, (start, end, label) in enumerate(steps):
        y = 80 + 38 * number
        if start == end:
            shapes.append(Note(90 + start * gap + 10, y + 4, label))
        else:
            shapes.append(Arrow(90 + start * gap, y, 90 + end * gap, y, label))
    return tuple(shapes)


DIAGRAMS = {
    "overview": Diagram(
        760,
        250,
        "Processes of a database and the object store that they share",
        (
            Box(20, 30, 120, 40, "clients", "file"),
            Box(20, 150, 120, 40, "programs|(shale.Db)", "file"),
            Box(210, 30, 130, 40, "writer", "process"),
            Group(400, 20, 150, 200, "object store"),
            *(
                Box(415, 50 + 40 * n, 120, 32, text)
                for n, text in enumerate(("manifest", "wal", "SSTs", "compactions"))
            ),
            Box(610, 20, 130, 40, "readers", "process"),
            Box(610, 80, 130, 40, "compactor", "process"),
            Box(610, 130, 130, 40, "workers", "process"),
            Box(610, 180, 130, 40, "gc", "process"),
            Arrow(140, 50, 210, 50, "HTTP, RESP"),
            Arrow(340, 50, 400, 50),
            Arrow(140, 170, 400, 170, "the library in your process"),
            *(Arrow(550, y, 610, y) for y in (40, 100, 150, 200)),
        ),
    ),
    "lsm": Diagram(
        760,
        330,
        "An LSM tree on an object store: memtables in memory, WAL files, L0 SSTs and sorted runs in the store",
        (
            Group(20, 15, 720, 110, "writer's memory", "memory"),
            Box(40, 50, 130, 50, "WAL buffer"),
            Box(250, 50, 150, 50, "memtable"),
            Box(480, 50, 220, 50, "immutable memtables"),
            Arrow(400, 75, 480, 75, "freeze"),
            Group(20, 180, 720, 140, "object store"),
            *row(40, 230, ("wal 17", "wal 18")),
            *row(250, 230, ("L0 new", "L0 old")),
            Box(480, 215, 240, 28, "sorted run 4: a–f · g–z"),
            Box(480, 249, 240, 28, "sorted run 1: a–k · l–p · q–z"),
            Arrow(105, 100, 105, 230, "WAL flush"),
            Arrow(590, 100, 330, 230, "memtable flush"),
            Arrow(410, 245, 480, 245, "compact"),
            Note(250, 305, "The manifest names every SST; a reader merges newest first, left to right."),
        ),
    ),
    "fencing": Diagram(
        690,
        420,
        "A new writer fences an old one by writing the next epoch",
        sequence(
            ("old writer", "object store", "new writer"),
            (
                (0, 1, "create manifest 7, epoch 3"),
                (0, 0, "stalls"),
                (2, 1, "create manifest 8, writer_epoch 4"),
                (2, 1, "create empty WAL file 21 (the fence)"),
                (0, 0, "resumes"),
                (0, 1, "create WAL file 21"),
                (1, 0, "exists: a newer epoch"),
                (0, 0, "exits with 80"),
                (2, 1, "create WAL file 22"),
            ),
        ),
    ),
    "boundary": Diagram(
        700,
        190,
        "The boundary rejects ids at or below it, so deleted ids are never created again",
        (
            *(Box(20 + 82 * n, 60, 74, 34, f"{n + 1}", "gone", is_dashed=True) for n in range(4)),
            *(Box(20 + 82 * n, 60, 74, 34, f"{n + 1}", "file") for n in range(4, 7)),
            Box(20 + 82 * 7, 60, 74, 34, "next: 8", "memory", is_dashed=True),
            Note(20, 40, "deleted by gc"),
            Note(350, 40, "kept"),
            Arrow(344, 150, 344, 98),
            Note(230, 168, "gc/manifest.boundary = 4: a create of id 4 or below is rejected"),
        ),
    ),
    "checkpoints": Diagram(
        740,
        300,
        "A checkpoint keeps a manifest version; a clone borrows SSTs from its source",
        (
            Group(20, 15, 420, 270, "orders"),
            *row(40, 50, ("manifest 5", "manifest 9"), width=110),
            *row(40, 190, ("SST a", "SST b", "SST c", "SST d")),
            Box(32, 118, 96, 30, "checkpoint", "memory"),
            Arrow(80, 118, 80, 80),
            Arrow(142, 80, 142, 190, "a, b"),
            Arrow(230, 80, 280, 190, "c, d"),
            Note(40, 250, "gc keeps a and b while the checkpoint"),
            Note(40, 268, "lives, although manifest 9 dropped them."),
            Group(500, 15, 220, 270, "orders-test (clone)"),
            *row(520, 50, ("manifest 1",), width=110),
            *row(520, 190, ("SST x",)),
            Arrow(520, 80, 370, 190, "borrows c, d"),
            Arrow(575, 80, 575, 190, "own writes"),
        ),
    ),
    "compaction": Diagram(
        760,
        400,
        "A compaction from submission to the manifest",
        sequence(
            ("coordinator", "object store", "worker"),
            (
                (0, 1, "compactions: job scheduled"),
                (2, 1, "compactions: job claimed"),
                (1, 2, "read input SSTs, block by block"),
                (2, 1, "upload output SSTs"),
                (2, 1, "compactions: progress and heartbeat"),
                (2, 1, "compactions: job compacted"),
                (0, 1, "manifest: the run replaces its sources"),
                (0, 1, "compactions: job completed"),
            ),
            gap=290,
        ),
    ),
    "durability": Diagram(
        760,
        200,
        "Where a write is after each step",
        (
            *(
                Box(20 + 185 * n, 50, 150, 60, text, kind)
                for n, (text, kind) in enumerate(
                    (
                        ("in memory|(put returned)", "memory"),
                        ("in the WAL|(handle.durable())", "store"),
                        ("in an L0 SST|(memtable flush)", "store"),
                        ("in a sorted run|(compaction)", "store"),
                    )
                )
            ),
            *(Arrow(170 + 185 * n, 80, 205 + 185 * n, 80) for n in range(3)),
            Note(20, 140, "lost by a crash"),
            Note(205, 140, "survives a crash; replayed at the next open"),
            Note(20, 165, 'readable by durability="memory"'),
            Note(205, 165, "readable by every process"),
        ),
    ),
}


def files() -> dict[Path, str]:
    """Return the text of every diagram by its path."""
    return {IMAGES / f"{name}.svg": diagram.svg() for name, diagram in DIAGRAMS.items()}


def main() -> None:
    """Write all diagrams."""
    for path, text in files().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main()
