# syntax=docker/dockerfile:1
# Every RUN is a step of image/build.py; tests/unit/image carries out this very file without a container engine.
# checkov:skip=CKV_DOCKER_2: Kubernetes asks /healthz and /readyz itself.
# The Python that all tests run with; wheels for linux/amd64 and linux/arm64 are checked by `make image-check`.
ARG PYTHON=3.11
ARG DEBIAN=trixie

# The full image has strip, so that nothing needs to be installed from Debian.
FROM python:${PYTHON}-${DEBIAN} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
COPY image/ image/
COPY requirements/ requirements/
RUN python image/build.py install requirements/run.txt /opt/covey
COPY pyproject.toml README.md LICENSE ./
COPY operator/ operator/
RUN python image/build.py wheel . /wheels && \
    python image/build.py add /wheels /opt/covey && \
    python image/build.py trim /opt/covey && \
    python image/build.py compile /opt/covey

FROM python:${PYTHON}-slim-${DEBIAN} AS stdlib
WORKDIR /src
COPY image/ image/
COPY --from=build /opt/covey/ /opt/covey/
RUN python image/build.py stdlib /opt/covey /stdlib

FROM python:${PYTHON}-slim-${DEBIAN}
ARG PYTHON
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
      org.opencontainers.image.source="${SOURCE}"
COPY --from=stdlib /stdlib/ /usr/local/lib/python${PYTHON}/
COPY --from=build /opt/covey/ /opt/covey/
# numpy brings OpenBLAS, which starts a thread for every core and is never called; glibc keeps an arena for each thread.
ENV PATH=/opt/covey/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    OPENBLAS_NUM_THREADS=1 \
    MALLOC_ARENA_MAX=2
USER 65532:65532
ENTRYPOINT ["covey"]
