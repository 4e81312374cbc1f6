# Three images from one file: `service` (producer, consumer and queue; Python alone), `cli` (the command line) and
# `control` (with Java, Spark and Spark's jars). Each installs its role's lock, whose versions are those that the tests ran
# with, and pip checks every file's hash. Defaults that `baton.env` may change are set here, because docker-compose.yml
# would override it.

FROM python:3.11-slim-bookworm AS base
ENV PATH=/opt/baton/bin:$PATH \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONPATH=/app \
    PYTHONUNBUFFERED=1
WORKDIR /app
# the folders belong to the user, so new volumes mounted there do too
RUN useradd --uid 1000 --create-home baton && install -d -o baton -g baton /data /state

FROM base AS packages
RUN python -m venv /opt/baton

FROM packages AS service-packages
COPY locks/service.lock ./
RUN pip install --require-hashes -r service.lock

FROM packages AS cli-packages
COPY locks/cli.lock ./
RUN pip install --require-hashes -r cli.lock

FROM packages AS control-packages
COPY locks/control.lock ./
RUN pip install --require-hashes -r control.lock

FROM base AS service
COPY --from=service-packages /opt/baton /opt/baton
COPY shared shared
COPY services services
COPY agent agent
USER baton
CMD ["python", "-P", "-m", "services.producer"]

FROM base AS cli
COPY --from=cli-packages /opt/baton /opt/baton
COPY shared shared
COPY services services
COPY cli cli
ENV BATON_STATE=/state
USER baton
# where a folder of the host can be mounted, for `import`
WORKDIR /data
ENTRYPOINT ["python", "-P", "-m", "cli.main"]

FROM base AS java
# procps: Spark's start script calls `ps`
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps \
    && rm -rf /var/lib/apt/lists/*
COPY --from=control-packages /opt/baton /opt/baton

FROM java AS jars
COPY locks/cli.lock ./
RUN pip install --require-hashes -r cli.lock
COPY shared shared
COPY cli cli
# those for a lake on an object store, too, which are small
RUN BATON_CACHE=/cache python -c "from cli.stack.jars.downloads import fetch_jars; [fetch_jars(use) for use in ('spark', 's3')]"

FROM java AS control
COPY --from=jars /cache/jars /opt/cache/jars
# where a driver keeps the archive for executors
RUN install --directory --owner=baton /opt/cache/jars/packs
COPY shared shared
COPY services services
# drivers end with the container that they run in
ENV BATON_CACHE=/opt/cache \
    BATON_LAKE=/data/lake \
    BATON_RUNS=/data/runs \
    BATON_RUNS_AT_STOP=end
USER baton
CMD ["python", "-P", "-m", "services.control"]
