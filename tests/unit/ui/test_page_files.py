"""The page's files, read as text: the rules that they keep."""

import re
from importlib.resources import files

import pytest

PAGE = {
    each.name: each.read_text() for each in files("covey.ui").joinpath("page").iterdir() if each.name != "__init__.py"
}
SCRIPTS = {name: text for name, text in PAGE.items() if name.endswith(".js")}


def test_no_script_turns_text_into_markup_or_code(subtests: pytest.Subtests) -> None:
    for name, text in SCRIPTS.items():
        with subtests.test(name):
            banned = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|\beval\b|new Function|setAttribute\(\"style|javascript:"
            assert not re.search(banned, text)


def test_the_document_has_no_script_or_style_of_its_own() -> None:
    html = PAGE["index.html"]
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=", html)
    assert re.findall(r"<script[^>]*>", html) == ['<script type="module" src="main.js">']


def test_nothing_names_another_host(subtests: pytest.Subtests) -> None:
    for name, text in PAGE.items():
        with subtests.test(name):
            hosts = set(re.findall(r"https?://[^\s\"'`)]+", text)) - {"http://www.w3.org/2000/svg"}
            assert hosts == set()
            assert re.fullmatch(r"[a-z0-9.-]+\.(html|css|js|svg)", name)


def test_every_file_is_asked_for_by_another() -> None:
    asked = {"index.html"}
    for text in PAGE.values():
        asked |= set(re.findall(r"(?:from \"\./|href=\"|src=\")([a-z-]+\.(?:js|css|svg))\"", text))
    assert asked == set(PAGE)


def test_every_element_that_a_script_asks_for_is_in_the_document() -> None:
    wanted = {name for text in SCRIPTS.values() for name in re.findall(r"byId\(\"([a-z-]+)\"\)", text)}
    there = set(re.findall(r"\bid=\"([a-z-]+)\"", PAGE["index.html"]))
    assert wanted <= there | {"gang-title"}
