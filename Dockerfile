# Two stages: the first builds wheels, the second has only the proxy and its libraries.
FROM python:3.13-slim AS wheels
WORKDIR /src
# mypyc and Cython translate to C, so this stage needs a C compiler.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
COPY pyproject.toml hatch_build.py constraints.txt README.md LICENSE ./
COPY config config
COPY kafka_quota_proxy kafka_quota_proxy
COPY pipeline pipeline
COPY protocol protocol
COPY proxy proxy
# Without isolation, so that the compilers are pinned like the rest. The extra is for a usage log in a topic.
RUN pip install --no-cache-dir --constraint constraints.txt cython hatchling mypy setuptools \
    && KQP_COMPILE=1 pip wheel --no-cache-dir --no-build-isolation --constraint constraints.txt --wheel-dir /wheels '.[usage-topic]'

FROM python:3.13-slim
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin proxy
COPY --from=wheels /wheels /wheels
RUN pip install --no-cache-dir --no-index /wheels/*.whl && rm -r /wheels
USER 10001
WORKDIR /etc/kafka-quota-proxy
# Asks the address that the file names. With another file than proxy.yaml, override it: docker run --health-cmd.
HEALTHCHECK --interval=30s --timeout=5s --start-period=5s --retries=2 \
    CMD ["kafka-quota-proxy", "healthcheck", "proxy.yaml"]
ENTRYPOINT ["kafka-quota-proxy"]
CMD ["run", "proxy.yaml"]
