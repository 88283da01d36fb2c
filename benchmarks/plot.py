"""A picture of one row of figures as SVG, without a plotting library."""

from collections.abc import Sequence
from html import escape

_WIDTH, _HEIGHT, _MARGIN = 640, 360, 60


def bars(title: str, x_label: str, y_label: str, values: Sequence[tuple[str, float]]) -> str:
    """A bar chart of (label, value >= 0) from zero up, as an SVG document."""
    top = max((value for _, value in values), default=0) or 1.0
    step = (_WIDTH - 2 * _MARGIN) / max(1, len(values))
    base, room = _HEIGHT - _MARGIN, _HEIGHT - 2 * _MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" font-family="sans-serif">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        _text(_WIDTH / 2, 28, title, size=18),
        _text(_WIDTH / 2, _HEIGHT - 14, x_label),
        f'<g transform="rotate(-90 18 {_HEIGHT / 2})">{_text(18, _HEIGHT / 2, y_label)}</g>',
        f'<line x1="{_MARGIN}" y1="{base}" x2="{_WIDTH - _MARGIN}" y2="{base}" stroke="black"/>',
    ]
    for i, (label, value) in enumerate(values):
        x, height = _MARGIN + (i + 0.2) * step, room * value / top
        middle = x + 0.3 * step
        parts.append(
            f'<rect x="{x:.1f}" y="{base - height:.1f}" width="{0.6 * step:.1f}" height="{height:.1f}" fill="#4878a8"/>'
        )
        parts += [_text(middle, base + 18, label), _text(middle, base - height - 6, f"{value:,.0f}")]
    return "\n".join([*parts, "</svg>", ""])


def _text(x: float, y: float, text: str, *, size: int = 13) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="middle">{escape(text)}</text>'
