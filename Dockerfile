# One image, several commands: `shale writer`, `shale compactor`, `shale worker`, `shale gc`, `shale reader`, `shale <noun> <verb>`.
#
#   docker build -t shale:local .                       the daemons and the command line
#   docker build --target spark -t shale-spark:local .  the same with PySpark and a Java (docs/how-to/spark.md)
#
# BASE_IMAGE is any glibc image with Python >= 3.11 as `python`; releases pin it by digest.
# The kernels are compiled for every processor of the machine's kind, and chosen when they are loaded.
ARG BASE_IMAGE=python:3.12-slim


# --- everything that is installed, by hash ---------------------------------------------------------------------------
FROM ${BASE_IMAGE} AS builder
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_COMPILE=1 UV_LINK_MODE=copy UV_PYTHON_DOWNLOADS=never
WORKDIR /src
COPY requirements.lock requirements-dev.lock ./
# The lock pins the installer, too; it stays in this stage.
RUN --mount=type=cache,target=/root/.cache \
    awk '/^uv==/ {on=1} on {print} on && !/\\$/ {exit}' requirements-dev.lock > installer.lock \
    && python -m venv /opt/installer \
    && /opt/installer/bin/pip install --quiet --require-hashes --no-deps -r installer.lock \
    && python -m venv --without-pip /opt/venv
RUN --mount=type=cache,target=/root/.cache \
    VIRTUAL_ENV=/opt/venv /opt/installer/bin/uv pip install --quiet --require-hashes --only-binary :all: -r requirements.lock
# Some wheels contain debug symbols, ten times the size of their code.
COPY deploy/strip_symbols.py ./
RUN python strip_symbols.py /opt/venv/lib
COPY pyproject.toml README.md* ./
COPY shared shared
COPY services services
RUN --mount=type=cache,target=/root/.cache \
    test -f README.md || echo Shale > README.md; \
    SHALE_WHEEL_MACHINE=$(uname -m) VIRTUAL_ENV=/opt/venv /opt/installer/bin/uv pip install --quiet --no-deps . \
    # The packages' own tests.
    && find /opt/venv/lib -type d -name tests -path '*/site-packages/n*' -prune -exec rm -r {} +


# --- labels and environment of every image ------------------------------------------------------------------------------
FROM ${BASE_IMAGE} AS base
ARG VERSION=0
ARG REVISION=unknown
ARG CREATED=1970-01-01T00:00:00Z
ARG BASE_IMAGE
LABEL org.opencontainers.image.title="Shale" \
      org.opencontainers.image.description="Storage engine and daemons for databases that live in an object store" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.base.name="${BASE_IMAGE}"
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONFAULTHANDLER=1 \
    MALLOC_ARENA_MAX=2 \
    SHALE_REVISION=${REVISION} \
    SHALE_ADMIN__HOST=0.0.0.0 \
    SHALE_ADMIN__REQUIRE_TOKEN=true \
    SHALE_SHUTDOWN__LINGER=40s \
    SHALE_WRITER__HTTP__HOST=0.0.0.0 \
    SHALE_WRITER__RESP__HOST=0.0.0.0 \
    SHALE_READER__HTTP__HOST=0.0.0.0 \
    SHALE_READER__RESP__HOST=0.0.0.0


# --- the daemons -----------------------------------------------------------------------------------------------------
FROM base AS daemons
COPY --from=builder /opt/venv /opt/venv
# The modules that daemons import are compiled to bytecode here once, and only read later.
RUN PYTHONDONTWRITEBYTECODE="" python -c "import shale_writer.app, shale_compactor.app, shale_compactor.worker.app, shale_gc.app, shale_reader.app, shale_cli.framework.app; \
        from shale.kernels.dispatch import use_kernels; assert use_kernels()" \
    && mkdir -p /var/cache/shale /var/lib/shale/tokens /var/lib/shale/secrets \
    && chown 10001:10001 /var/cache/shale /var/lib/shale/tokens /var/lib/shale/secrets
USER 10001:10001
WORKDIR /
STOPSIGNAL SIGTERM
EXPOSE 8080 6379 9464
HEALTHCHECK --interval=5s --timeout=3s --start-period=60s --retries=5 CMD ["shale", "healthcheck"]
ENTRYPOINT ["shale"]
CMD ["--help"]


# --- the same with PySpark and a Java: for drivers and executors, also those that Kubernetes starts -------------------------
FROM builder AS spark-builder
COPY requirements-spark.lock ./
# PySpark comes as a source distribution only.
RUN --mount=type=cache,target=/root/.cache \
    VIRTUAL_ENV=/opt/venv /opt/installer/bin/uv pip install --quiet --require-hashes --only-binary :all: --no-binary pyspark \
        -r requirements-spark.lock \
    && rm -r /opt/venv/lib/python*/site-packages/pyspark/examples /opt/venv/lib/python*/site-packages/pyspark/data


FROM base AS spark
COPY --from=spark-builder /opt/venv /opt/venv
# Java needs a name for its user. Its package needs a folder that slim images lack.
RUN mkdir -p /usr/share/man/man1 && echo 'shale:x:10001:10001:Shale:/tmp:/usr/sbin/nologin' >> /etc/passwd && echo 'shale:x:10001:' >> /etc/group \
    && DEBIAN_FRONTEND=noninteractive python -m shale_spark.java_install \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/archives/*.deb
RUN PYTHONDONTWRITEBYTECODE="" python -c "import shale_compactor.worker.app, shale_cli.framework.app, shale_spark.cli.app, shale_spark.session, shale_spark.tasks; \
        from shale.kernels.dispatch import use_kernels; assert use_kernels()" \
    && mkdir -p /var/cache/shale /var/lib/shale/tokens /var/lib/shale/secrets \
    && chown 10001:10001 /var/cache/shale /var/lib/shale/tokens /var/lib/shale/secrets
ENV PYSPARK_PYTHON=/opt/venv/bin/python
USER 10001:10001
WORKDIR /tmp
STOPSIGNAL SIGTERM
EXPOSE 8080 6379 9464
HEALTHCHECK --interval=5s --timeout=3s --start-period=60s --retries=5 CMD ["shale", "healthcheck"]
ENTRYPOINT ["python", "-m", "shale_spark.kubernetes"]
CMD ["--help"]


# --- the default target -------------------------------------------------------------------------
FROM daemons AS runtime
