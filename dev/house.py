"""Print how the product reads, in figures: ``python dev/house.py``. None of them is a bound.

A figure stands for something that a reader feels, and says where to look: how much there is, how many functions one decision
enters, the longest of them, and which names of classes stand for two things.
"""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path
from types import CodeType
from typing import Final

from walks import WALKS

ROOT: Final = Path(__file__).resolve().parent.parent
PRODUCT: Final = ROOT / "operator" / "covey"
_BRANCHES: Final = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.IfExp, ast.Match, ast.comprehension)


def longest(functions: list[CodeType]) -> str:
    """The longest of some functions, its lines and its branches."""
    sizes = []
    for path in {code.co_filename for code in functions}:
        starts = {code.co_firstlineno for code in functions if code.co_filename == path}
        for node in ast.walk(ast.parse(Path(path).read_text())):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if first in starts:
                branches = sum(isinstance(inner, _BRANCHES) for inner in ast.walk(node))
                where = f"{Path(path).relative_to(PRODUCT)}:{node.lineno} {node.name}"
                sizes.append(((node.end_lineno or node.lineno) - first + 1, branches, where))
    lines, branches, where = max(sizes)
    return f"{where}, {lines} lines, {branches} branches"


def main() -> None:
    """Print the figures."""
    texts = [path.read_text() for path in sorted(PRODUCT.rglob("*.py"))]
    tests = [path.read_text() for path in sorted((ROOT / "tests").rglob("*.py"))]
    classes = Counter(
        node.name for text in texts for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef)
    )
    print(f"{sum(text.count(chr(10)) for text in texts):7,}  lines of the product, in {len(texts)} files")
    print(f"{sum(text.count(chr(10)) for text in tests):7,}  lines of tests, in {len(tests)} files")
    print(f"{sum(count > 1 for count in classes.values()):7,}  names that more than one class has")
    for name, walk in WALKS.items():
        functions = walk()
        print(f"{len(functions):7,}  functions entered by a {name}; the longest: {longest(functions)}")


if __name__ == "__main__":
    main()
