"""Draws a session on a terminal as SVG: reads [[command, output], ...] as JSON, and prints the picture."""

import io
import json
import sys

from rich.console import Console
from rich.text import Text

COLUMNS = 92
SECONDS = 10
# rich's own names fonts of another server.
FORMAT = """<svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{
  font: {char_height}px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
}}
@keyframes appear {{ from {{ opacity: 0 }} }}
@media (prefers-reduced-motion: no-preference) {{ text {{ animation: appear 0.5s backwards }} }}
{styles}
DELAYS
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal"><rect width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">{matrix}</g>
</g>
</svg>
"""


def main():
    steps = json.load(sys.stdin)
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    delays, row = [], 0
    for number, (command, output) in enumerate(steps):
        is_comment = command.startswith("#")
        blank = "\n" if is_comment else ""
        style = "bold #7ee787" if is_comment else "bold #ffffff"
        step = Text.assemble(blank, ("$ ", "#8b949e"), (command + "\n", style), output)
        step.highlight_regex(r"(?<=py mongodb://127.0.0.1:)\d+", "bold #ffd33d")
        console.print(step, end="", highlight=False, soft_wrap=True)
        first, row = row, row + str(step).count("\n")
        rows = ", ".join(f'[clip-path$="-line-{row})"]' for row in range(first, row))
        delays.append(f"{rows} {{ animation-delay: {number * SECONDS / len(steps):.1f}s }}")
    console.print()  # rich clips the last row.
    code_format = FORMAT.replace("DELAYS", "\n".join(delays).replace("{", "{{").replace("}", "}}"))
    picture = console.export_svg(title="", code_format=code_format, unique_id="session")
    sys.stdout.write("\n".join(line.strip() for line in picture.splitlines() if line.strip()) + "\n")


main()
