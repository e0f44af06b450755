"""What a person sees and does on the page, in their words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from playwright.sync_api import Locator, Page, expect

from screens.chromium import PATIENCE, Watch

expect.set_options(timeout=PATIENCE * 1000)


@dataclass(frozen=True)
class Screen:
    """A page that is open."""

    page: Page
    watch: Watch

    def live(self) -> Screen:
        """Wait until the page shows what there is."""
        expect(self.page.locator("#connection")).to_have_attribute("data-state", "live")
        return self

    # What is there

    def gang(self, key: str) -> Locator:
        """A gang's row, by ``namespace/name``."""
        namespace, _, name = key.partition("/")
        row = self.page.locator("#gangs-list .gang-row")
        return row.filter(has=self.page.locator(f"strong:text-is({name!r})")).filter(
            has=self.page.locator(f".dim:text-is({namespace!r})")
        )

    def stands(self, key: str) -> Locator:
        """How it stands with a gang, in words: its row has the word *ready* beside each role, for screen readers."""
        return self.gang(key).locator(".gang-state")

    def waiting(self, key: str) -> Locator:
        """The card of something that waits."""
        return self.page.locator("#waiting-list > li", has_text=key)

    def pods(self, key: str) -> Locator:
        """What of a gang is drawn on the floor."""
        namespace, _, name = key.partition("/")
        return self.page.locator(f'#tree .run[data-pod^="{namespace}/{name}-"]')

    def nodes_of(self, key: str) -> Locator:
        """The rows of the nodes on which pods of a gang are drawn."""
        namespace, _, name = key.partition("/")
        pods = self.page.locator(f'.run[data-pod^="{namespace}/{name}-"]')
        return self.page.locator("#tree .node").filter(has=pods)

    def node(self, name: str) -> Locator:
        """A node's row."""
        return self.page.locator(f'#tree [role=treeitem][aria-label^="{name}:"]')

    def domain(self, title: str) -> Locator:
        """A domain's frame."""
        return self.page.locator(f'#tree [role=treeitem][aria-label^="{title}:"]')

    def state(self) -> Any:
        """The element that has the keyboard's focus: its id, role, and name."""
        return self.page.evaluate(
            "({id: document.activeElement.id, role: document.activeElement.getAttribute('role'),"
            " label: document.activeElement.getAttribute('aria-label'), tag: document.activeElement.tagName})"
        )

    # What is done

    def select(self, key: str) -> Locator:
        """Select a gang; its panel is returned."""
        row = self.gang(key)
        if row.get_attribute("aria-pressed") != "true":
            row.click()
        return self.page.locator("#gang")

    def plan(self, manifest: str) -> Locator:
        """Paste a manifest and plan it; the answer is returned."""
        if self.page.locator("#plan").is_hidden():
            self.page.get_by_role("tab", name="Plan").click()
        self.page.get_by_label("Manifest, YAML or JSON").fill(manifest)
        self.page.get_by_role("button", name="Plan", exact=True).click()
        return self.page.locator("#plan")

    def press(self, *keys: str) -> None:
        """Press keys one after the other."""
        for key in keys:
            self.page.keyboard.press(key)
