# jax_rl for hosts with TPUs. Build from the root of the checkout:
#
#   docker build -f scripts/docker/tpu.Dockerfile -t jax-rl:tpu .
#   docker run --privileged --net host -v /shared:/shared jax-rl:tpu jax-rl train tiny --dir /shared/tiny
FROM python:3.12-slim AS build
WORKDIR /source
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/venv
# Dependencies first, from what names them alone: this layer stays when only code has changed.
COPY pyproject.toml README.md LICENSE ./
COPY jax_rl/__init__.py jax_rl/
RUN mkdir sharding configs && /opt/venv/bin/pip install '.[tpu]'
COPY jax_rl jax_rl
COPY sharding sharding
COPY configs configs
RUN /opt/venv/bin/pip install --force-reinstall --no-deps .

FROM python:3.12-slim
RUN useradd --create-home --uid 1000 jax
COPY --from=build /opt/venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH PYTHONUNBUFFERED=1
USER 1000
WORKDIR /home/jax
# Sets the XLA flags of the platform, then becomes the command.
ENTRYPOINT ["bash", "-c", "flags=$(python -m jax_rl.hosts.xla_flags tpu) && eval \"$flags\" && exec \"$@\"", "entry"]
CMD ["jax-rl", "--help"]
