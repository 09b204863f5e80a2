"""One HTML file of everything: no network, no server, no other file."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from plotly.offline import get_plotlyjs

from coop_cmp.metrics.records import shown_in
from coop_cmp.report.groups import COLOURS
from coop_cmp.report.page.details import pictures
from coop_cmp.report.page.missing import find_missing
from coop_cmp.report.page.records import mixtures, records, warnings
from coop_cmp.report.page.rows import Row, rows_of
from coop_cmp.runs.notes import notes
from coop_cmp.runs.stored import StoredRun

Images = Callable[[StoredRun], Mapping[int, str]]
PARTS = ("tools", "table", "charts", "curves", "pictures", "detail", "page")
SCRIPTS = [f"{name}.js" for name in PARTS]


def build(
    runs: Sequence[StoredRun],
    title: str,
    problems: Sequence[str] = (),
    output: Path | None = None,
    intervals: bool = True,
    images: Images | None = None,
) -> str:
    """Return the page as text.

    Args:
        title: What the page is of.
        problems: What could not be read, each beginning with the path.
        output: Where to look for runs that have begun and not finished.
        intervals: Whether to resample the images.
        images: Finds the files of a run's test images by their numbers; none without it.
    """
    rows = rows_of(runs, intervals)
    missing = find_missing(output, [row.group for row in rows], problems)
    return render(page_data(rows, missing, title, images))


def page_data(
    rows: Sequence[Row], missing: Sequence[Any], title: str, images: Images | None = None
) -> dict[str, Any]:
    """Everything the page shows; ready for JSON."""
    mixed, facts = mixtures(rows), [fact for row in rows for fact in row.group.rows]
    return {
        "title": title,
        "colours": COLOURS,
        "metrics": {
            metric.name: {
                "title": metric.heading,
                "scale": metric.scale,
                "decimals": metric.decimals,
                "better": {"higher": 1, "lower": -1, None: 0}[metric.better],
            }
            for metric in shown_in("table")
        },
        "runs": sum(len(row.group.runs) for row in rows),
        "rows": [{**row.summary(), "mixed": names} for row, names in zip(rows, mixed, strict=True)],
        # Unpacked by the browser when a row is chosen: most of them never are.
        "details": [
            packed({**pictures(row.group, files), **records(row)})
            for row in rows
            for files in [images(row.group.runs[0]) if images else {}]
        ],
        "missing": missing,
        "warnings": warnings(rows),
        "notes": [str(note) for note in notes({f["directory"]: f["notes"] for f in facts})],
    }


def packed(value: Any) -> str:
    """JSON, compressed, as text; the same for the same value."""
    return base64.b64encode(gzip.compress(_json(value).encode(), 6, mtime=0)).decode()


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def render(data: dict[str, Any]) -> str:
    """The HTML of a page's data.

    Only the page's own scripts may run, by their digests, and nothing may be fetched; so even text
    that got past the escaping could do no harm.
    """
    here = files(__package__)
    scripts = [get_plotlyjs(), *((here / name).read_text(encoding="utf-8") for name in SCRIPTS)]
    # The only place where a script could end early.
    scripts = [text.replace("</script", "<\\/script") for text in scripts]
    digests = [hashlib.sha256(text.encode()).digest() for text in scripts]
    environment = Environment(
        loader=PackageLoader(__package__, "."), autoescape=True, undefined=StrictUndefined
    )
    return environment.get_template("page.html").render(
        data=data,
        # JSON may hold any text, but no tag that a browser would see.
        json=_json(data).replace("<", "\\u003c").replace("\u2028", "\\u2028"),
        style=(here / "page.css").read_text(encoding="utf-8"),
        scripts=scripts,
        digests=[base64.b64encode(digest).decode() for digest in digests],
    )
