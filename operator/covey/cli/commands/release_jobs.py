"""``covey release-jobs``: resume the Jobs that Covey suspends, so that they are nobody's to resume any more.

Nobody else does where Covey is uninstalled, or ``gangs.jobs`` is switched off: such a Job would stay suspended for good.
"""

from __future__ import annotations

import asyncio

import click

from covey.api import constants as names
from covey.cli import options
from covey.cli.client import connect
from covey.kube.client import Ignored
from covey.kube.errors import Conflict, NotFound
from covey.kube.resources import JOBS
from covey.manifests.errors import InputError
from covey.operator.model.job import Job


@click.command("release-jobs")
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="Those of every namespace.")
@options.cluster
def release_jobs(everywhere: bool, namespace: str | None, context: str | None, kubeconfig: str | None) -> None:  # noqa: FBT001 - a flag
    """Resume the Jobs with the label covey.dev/gang that Covey suspends until it is their turn, and take its mark off.

    For an installation that is about to end, or to have gangs.jobs switched off. Their pods come at once, and wait gated.
    """
    if everywhere and namespace:
        raise InputError("-A", "contradicts --namespace", "give one of them")
    released, changed = asyncio.run(_release(namespace, context, kubeconfig, everywhere=everywhere))
    for place, name in released:
        click.echo(f'job.batch "{name}" resumed in {place} namespace')
    for place, name in changed:
        click.echo(f'job.batch "{name}" in {place} namespace was changed meanwhile: run this again', err=True)
    if not released and not changed:
        click.echo("No Job that Covey suspends found.", err=True)


async def _release(
    namespace: str | None, context: str | None, kubeconfig: str | None, *, everywhere: bool
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Resume them one by one; return namespace and name of each, and of those that somebody else has changed meanwhile."""
    released, changed = [], []
    async with connect(kubeconfig, context) as client:
        where = None if everywhere else namespace or client.namespace
        jobs, _ = await client.list(JOBS, where, labels=names.LABEL_JOB_GANG, type=Job)
        for job in (job for job in jobs if job.is_queued):
            meta = job.metadata
            notes = dict.fromkeys((names.ANNOTATION_QUEUED, names.ANNOTATION_RESUMED, names.ANNOTATION_GIVEN_UP))
            metadata = {"resourceVersion": meta.resource_version, "annotations": notes}
            body = {"metadata": metadata, "spec": {"suspend": False}}
            try:
                await client.merge_patch(JOBS, meta.name, meta.namespace, body, type=Ignored)
            except NotFound:
                continue
            except Conflict:
                changed.append(meta.key)
            else:
                released.append(meta.key)
    return released, changed
