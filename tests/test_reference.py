"""The Python reference: whatever it shows says what it takes and what it gives."""

import re
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
ENTRY = re.compile(r"^::: divmf\.(\S+)\n(?: +options:\n +members: \[(.*)\]\n)?", re.MULTILINE)
SHOWN = [(name, members.split(", ") if members else []) for name, members in
         ENTRY.findall((ROOT / "docs" / "reference" / "api.md").read_text())]  # fmt: skip


@pytest.mark.parametrize(("name", "members"), SHOWN, ids=[name for name, _ in SHOWN])
def test_functions_of_the_reference_document_their_parameters_and_what_they_return(
    name: str, members: list[str]
) -> None:
    if find_spec("griffe") is None:
        pytest.skip("needs mkdocstrings (pip install 'divmf[docs]')")
    shown = package()[name]
    functions = [shown] if shown.is_function else [shown[member] for member in members if shown[member].is_function]
    for function in functions:
        sections = {section.kind.value: section.value for section in function.docstring.parsed}
        documented = [parameter.name for parameter in sections.get("parameters", [])]
        taken = [each.name.lstrip("*") for each in function.parameters if each.name not in ("self", "cls")]
        assert documented == taken, function.path
        if taken and str(function.returns) != "None":
            assert "returns" in sections, function.path


@lru_cache
def package() -> Any:
    """The package as the site reads it."""
    import griffe

    return griffe.load("divmf", search_paths=[str(ROOT / "src")], docstring_parser="google")
