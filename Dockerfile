# checkov:skip=CKV_DOCKER_2: Kubernetes asks /healthz and /readyz itself.
# checkov:skip=CKV_DOCKER_7: the digest of the base is in the argument that names it, which checkov does not look into.
# tests/image runs what this file makes; dev/imaging.py carries it out without a container engine.
# By digest: a tag may be moved. `make image BASE=...` takes a later one, or a copy in your registry.
ARG BASE=python:3.11-slim-trixie@sha256:9534e5a8e315485d4061ed659af0fd78a284c015f9b73661b41d6bab25604534

FROM ${BASE} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
COPY requirements/ requirements/
RUN python -m venv --without-pip /opt/covey && \
    pip --python /opt/covey install --no-compile --require-hashes --only-binary=:all: -r requirements/run.txt
# What builds Covey's wheel stays in this stage.
RUN pip install --require-hashes --only-binary=:all: -r requirements/build.txt
COPY pyproject.toml README.md LICENSE ./
COPY operator/ operator/
RUN pip wheel --no-deps --no-build-isolation --wheel-dir /wheels . && \
    pip --python /opt/covey install --no-index /wheels/*.whl

FROM ${BASE}
ARG BASE
ARG VERSION=0.0.0
ARG REVISION=unknown
ARG CREATED=1970-01-01T00:00:00Z
ARG SOURCE
LABEL org.opencontainers.image.title="covey" \
      org.opencontainers.image.description="Hierarchical gang scheduling for disaggregated LLM inference on Kubernetes" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.source="${SOURCE}" \
      org.opencontainers.image.base.name="${BASE}"
COPY --from=build /opt/covey/ /opt/covey/
# Writes the byte-code of all that is imported, Python's own modules included: a read-only root keeps none at run time.
RUN /opt/covey/bin/python -c "import kubernetes.aio.client, kubernetes.aio.config, \
    click.shell_completion, covey.cli.client, covey.observability.log_forms, covey.operator.process.main, covey.scheduler.main"
# numpy brings OpenBLAS, which starts a thread for every core and is never called; glibc keeps an arena for each thread.
ENV PATH=/opt/covey/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    OPENBLAS_NUM_THREADS=1 \
    MALLOC_ARENA_MAX=2
USER 65532:65532
ENTRYPOINT ["covey"]
