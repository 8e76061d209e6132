# Two stages: the first compiles and installs, the second takes over what is installed and has no compiler.
FROM python:3.13-slim AS build
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
# What compiles is listed in hatch_build.py. pip pins it by the second variable, and before 25.3 by the first.
RUN PIP_CONSTRAINT=/src/constraints.txt PIP_BUILD_CONSTRAINT=/src/constraints.txt KQP_COMPILE=1 \
    pip install --no-cache-dir --prefix /installed .

FROM python:3.13-slim
LABEL org.opencontainers.image.title="kafka-quota-proxy" \
    org.opencontainers.image.description="Kafka quotas, enforced in front of any broker" \
    org.opencontainers.image.licenses="Apache-2.0"
# Not "proxy": Debian has a user of that name.
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin kafka-quota-proxy
COPY --from=build /installed /usr/local
USER 10001
WORKDIR /etc/kafka-quota-proxy
# Asks the address that the file names. With another file than proxy.yaml, override it: docker run --health-cmd.
HEALTHCHECK --interval=30s --timeout=5s --start-period=5s --retries=2 \
    CMD ["kafka-quota-proxy", "healthcheck", "proxy.yaml"]
ENTRYPOINT ["kafka-quota-proxy"]
CMD ["run", "proxy.yaml"]
