"""``make docs-pictures``: screenshots of ``covey ui`` for the documentation, in light and in dark."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser, Page

from localcluster import Cluster
from screens import chromium, scene
from screens.serving import Served

PICTURES: Final = Path(__file__).resolve().parents[2] / "docs" / "assets" / "pictures"
SIZE: Final = {"width": 1440, "height": 900}
MANIFEST: Final = """\
apiVersion: inference.covey.dev/v1alpha1
kind: DisaggregatedInference
metadata: {name: whisper, namespace: search}
spec:
  topology: {required: block}
  roles:
  - name: encode
    replicas: 2
    template:
      spec:
        containers:
        - name: engine
          image: registry.example.com/engine:1
          resources: {limits: {nvidia.com/gpu: 8}}
"""


def main() -> int:
    """Play both clusters and take the pictures."""
    parser = argparse.ArgumentParser(prog="python -m screens", description=__doc__)
    parser.add_argument("--pictures", type=Path, default=PICTURES, help="where the pictures go")
    given = parser.parse_args()
    given.pictures.mkdir(parents=True, exist_ok=True)
    with chromium.browser() as browser:
        with Cluster() as cluster:
            scene.small(scene.Scene(cluster))
            served = Served(cluster, "covey-ui", cluster.kubeconfig)
            for theme in ("light", "dark"):
                _small(browser, served, given.pictures, theme)
        with Cluster() as cluster:
            scene.large(scene.Scene(cluster))
            served = Served(cluster, "covey-ui", cluster.kubeconfig)
            for theme in ("light", "dark"):
                _large(browser, served, given.pictures, theme)
    print(f"{len(list(given.pictures.glob('*.png')))} pictures are in {given.pictures}")
    return 0


def _open(browser: Browser, served: Served, theme: str) -> Page:
    page, _ = chromium.visit(browser, served.link(), color_scheme=theme, viewport=SIZE)
    page.wait_for_selector("#tree [role=treeitem]")
    page.wait_for_selector("#waiting-list > li")
    return page


def _small(browser: Browser, served: Served, folder: Path, theme: str) -> None:
    page = _open(browser, served, theme)
    page.screenshot(path=folder / f"floor-{theme}.png")
    page.locator(".gang-row", has_text="llama").click()
    page.wait_for_selector('.event[data-kind="ready"]')
    page.locator("#gang").screenshot(path=folder / f"story-{theme}.png")
    page.keyboard.press("Escape")
    page.get_by_role("tab", name="Plan").click()
    page.get_by_label("Manifest, YAML or JSON").fill(MANIFEST)
    page.get_by_role("button", name="Plan", exact=True).click()
    page.wait_for_selector(".verdict")
    page.screenshot(path=folder / f"plan-{theme}.png")
    page.context.close()


def _large(browser: Browser, served: Served, folder: Path, theme: str) -> None:
    page = _open(browser, served, theme)
    page.screenshot(path=folder / f"large-{theme}.png")
    page.context.close()


if __name__ == "__main__":
    raise SystemExit(main())
